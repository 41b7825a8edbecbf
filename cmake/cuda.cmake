# SPDX-License-Identifier: Apache-2.0
# CUDA plugins, where the toolkit is: nothing else of the tree needs it, and a machine without it builds everything else.
set(MSABENCH_CUDA "AUTO" CACHE STRING "CUDA plugins: AUTO (where nvcc is), ON or OFF")
set_property(CACHE MSABENCH_CUDA PROPERTY STRINGS AUTO ON OFF)

set(MSABENCH_HAS_CUDA OFF)
if(MSABENCH_CUDA AND NOT MSABENCH_SANITIZE)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Each plugin names its own; this one is only for the compiler's own test.
    set(CMAKE_CUDA_ARCHITECTURES 80)
    enable_language(CUDA)
    # CMake 3.25 does not know yet that nvcc has C++20.
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_STANDARD_REQUIRED ON)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
    set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
    set(MSABENCH_HAS_CUDA ON)
  elseif(MSABENCH_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA plugins: skipped, nvcc is not on the PATH")
  else()
    message(FATAL_ERROR "MSABENCH_CUDA ON: nvcc is not on the PATH; put the CUDA toolkit's bin folder there, or take AUTO or OFF")
  endif()
endif()

# msabench_cuda_plugin(NAME SOURCES... ARCHITECTURES archs... [LINK libs...]): a plugin of .cu sources, installed; plugin.cu has the
# exported symbol.
function(msabench_cuda_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;ARCHITECTURES;LINK" ${ARGN})
  msabench_plugin(${name} SOURCES ${arg_SOURCES} LINK msabench_kernels_common ${arg_LINK})
  set_target_properties(plugin_${name} PROPERTIES CUDA_ARCHITECTURES "${arg_ARCHITECTURES}")
  target_include_directories(plugin_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(plugin_${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-ffp-contract=off>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${MSABENCH_WERROR}>>:-Werror=all-warnings -Xcompiler=-Werror>)
  target_link_options(plugin_${name} PRIVATE "-Wl,--version-script=${PROJECT_SOURCE_DIR}/kernels/exports.map")
  install(TARGETS plugin_${name} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/msabench" COMPONENT runtime)
endfunction()
