# SPDX-License-Identifier: Apache-2.0
# One way to declare a folder's library, a plugin and a test, so that every target gets the same flags.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

# Programs find their plugins and worker by their own place: bin/, and ../lib/msabench/ beside it; the same once installed.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
set(MSABENCH_PLUGIN_DIR "${CMAKE_BINARY_DIR}/lib/msabench")

find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CLI11 REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(Threads REQUIRED)
find_package(hwy QUIET)
if(NOT hwy_FOUND)
  message(FATAL_ERROR "Google Highway 1.0.3 or later is missing: the kernels in kernels/cpu need it; install libhwy-dev (ci/setup does)")
endif()

option(MSABENCH_WERROR "Treat warnings as errors" OFF)
option(MSABENCH_UNITY_TESTS "Compile the tests of a folder together: faster from scratch, slower after an edit" OFF)
option(MSABENCH_SANITIZE "Build with AddressSanitizer and UndefinedBehaviorSanitizer" OFF)

add_library(msabench_flags INTERFACE)
# CUDA sources have flags of their own, see cuda.cmake.
target_compile_options(msabench_flags INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  # Results are bit-identical from machine to machine: no contraction into FMA, and never fast-math.
  -ffp-contract=off>)
# At -O3 g++ 12 and 13 see overlaps, overflows and uninitialized reads in their own std::string and in {fmt} that are not there (GCC bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_BUILD_TYPE STREQUAL "Release")
  target_compile_options(msabench_flags INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Wno-restrict -Wno-stringop-overflow -Wno-maybe-uninitialized>)
endif()
if(MSABENCH_WERROR)
  target_compile_options(msabench_flags INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-Werror>)
endif()
if(MSABENCH_SANITIZE)
  target_compile_options(msabench_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  target_link_options(msabench_flags INTERFACE -fsanitize=address,undefined)
  target_compile_definitions(msabench_flags INTERFACE MSABENCH_SANITIZED=1)
endif()

# msabench_library(NAME SOURCES... LINK libs...): static library msabench_NAME of folder NAME; headers are included as "NAME/file.h".
function(msabench_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_library(msabench_${name} STATIC ${arg_SOURCES})
  target_include_directories(msabench_${name} PUBLIC "${PROJECT_SOURCE_DIR}")
  target_link_libraries(msabench_${name} PUBLIC ${arg_LINK} PRIVATE msabench_flags)
endfunction()

# msabench_plugin(NAME SOURCES... [LINK libs...] [OUTPUT dir]): a shared object that sees include/ only, built as NAME.so in the plugin folder.
function(msabench_plugin name)
  cmake_parse_arguments(arg "" "OUTPUT" "SOURCES;LINK" ${ARGN})
  if(NOT arg_OUTPUT)
    set(arg_OUTPUT "${MSABENCH_PLUGIN_DIR}")
  endif()
  add_library(plugin_${name} MODULE ${arg_SOURCES})
  set_target_properties(plugin_${name} PROPERTIES PREFIX "" OUTPUT_NAME "${name}" LIBRARY_OUTPUT_DIRECTORY "${arg_OUTPUT}")
  target_link_libraries(plugin_${name} PRIVATE msabench_plugin_header msabench_flags ${arg_LINK})
endfunction()

# msabench_test(NAME SOURCES... LINK libs... [DEPENDS targets] [TOGETHER]): one GoogleTest binary msabench_test_NAME, every test known to
# ctest. TOGETHER: no two of the sources give one name to different things, so they can be compiled as one.
function(msabench_test name)
  cmake_parse_arguments(arg "TOGETHER" "" "SOURCES;LINK;DEPENDS" ${ARGN})
  add_executable(msabench_test_${name} ${arg_SOURCES})
  target_include_directories(msabench_test_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
  # What is tested is compiled as users run it; the tests themselves only have to be compiled soon.
  target_compile_options(msabench_test_${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(MSABENCH_UNITY_TESTS AND arg_TOGETHER)
    set_target_properties(msabench_test_${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
  target_link_libraries(msabench_test_${name} PRIVATE ${arg_LINK} msabench_flags GTest::gtest GTest::gtest_main)
  target_compile_definitions(msabench_test_${name} PRIVATE MSABENCH_SOURCE_DIR="${PROJECT_SOURCE_DIR}" MSABENCH_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(arg_DEPENDS)
    add_dependencies(msabench_test_${name} ${arg_DEPENDS})
  endif()
  # The sanitized tests have names of their own, since one ctest run covers both builds (ci/test).
  set(prefix "${name}.")
  set(environment)
  if(MSABENCH_SANITIZE)
    set(prefix "asan.${name}.")
    # gcc 12's leak checker guesses where the thread-local data of a loaded plugin lies, and crashes where it guesses wrong.
    set(environment ENVIRONMENT "ASAN_OPTIONS=intercept_tls_get_addr=0")
  endif()
  gtest_discover_tests(msabench_test_${name} TEST_PREFIX "${prefix}" DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "${name}" TIMEOUT 300 ${environment})
endfunction()
