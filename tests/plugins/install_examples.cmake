# SPDX-License-Identifier: Apache-2.0
# What a third party does: installs the package, moves it, and builds a plugin against it with nothing else of this tree.
# Needs BUILD, SOURCE, WORK, GENERATOR, NM, C_COMPILER, CXX_COMPILER.
cmake_minimum_required(VERSION 3.25)

function(must_succeed what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what}: exit ${result}\n${output}")
  endif()
endfunction()

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
must_succeed("install" "${CMAKE_COMMAND}" --install "${BUILD}" --component dev --prefix "${WORK}/first place")
file(RENAME "${WORK}/first place" "${WORK}/moved")

file(GLOB_RECURSE package_files "${WORK}/moved/*")
foreach(file IN LISTS package_files)
  file(READ "${file}" text)
  foreach(path "${SOURCE}" "${BUILD}" "first place")
    string(FIND "${text}" "${path}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} holds the path ${path}; the package cannot be moved")
    endif()
  endforeach()
endforeach()

foreach(example c cpp)
  # The installed copy is what the plugin guide hands out.
  file(COPY "${WORK}/moved/share/msabench/examples/plugin/${example}" DESTINATION "${WORK}/examples")
  set(build "${WORK}/build-${example}")
  must_succeed("configure ${example}" "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${WORK}/examples/${example}" -B "${build}"
    -D "CMAKE_PREFIX_PATH=${WORK}/moved" -D "CMAKE_C_COMPILER=${C_COMPILER}" -D "CMAKE_CXX_COMPILER=${CXX_COMPILER}"
    -D CMAKE_BUILD_TYPE=Release -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF)
  must_succeed("build ${example}" "${CMAKE_COMMAND}" --build "${build}")
  set(plugin "${build}/example_${example}.so")
  if(NOT EXISTS "${plugin}")
    message(FATAL_ERROR "${plugin} was not built")
  endif()
  execute_process(COMMAND "${NM}" -D --defined-only --format=posix "${plugin}" OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
  if(NOT symbols MATCHES "^msabench_plugin_get [^\n]*\n$")
    message(FATAL_ERROR "${plugin} exports something else than msabench_plugin_get alone:\n${symbols}")
  endif()
endforeach()
