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

# Of both below: flags of .cu sources, which see the tree's headers.
function(msabench_cuda_flags target architectures)
  set_target_properties(${target} PROPERTIES CUDA_ARCHITECTURES "${architectures}")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra,-ffp-contract=off>
    $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${MSABENCH_WERROR}>>:-Werror=all-warnings -Xcompiler=-Werror>)
endfunction()

# msabench_cuda_kernels(NAME SOURCES... ARCHITECTURES archs...): the objects cuda_kernels_NAME, which several plugins can hold.
function(msabench_cuda_kernels name)
  cmake_parse_arguments(arg "" "" "SOURCES;ARCHITECTURES" ${ARGN})
  add_library(cuda_kernels_${name} OBJECT ${arg_SOURCES})
  set_target_properties(cuda_kernels_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_link_libraries(cuda_kernels_${name} PRIVATE msabench_kernels_common msabench_flags)
  msabench_cuda_flags(cuda_kernels_${name} "${arg_ARCHITECTURES}")
endfunction()

# msabench_cuda_plugin(NAME SOURCES... ARCHITECTURES archs... [LINK libs...]): a plugin of .cu sources, installed; plugin.cu has the
# exported symbol. LINK: cuda_kernels_NAME too.
function(msabench_cuda_plugin name)
  cmake_parse_arguments(arg "" "" "SOURCES;ARCHITECTURES;LINK" ${ARGN})
  msabench_plugin(${name} SOURCES ${arg_SOURCES} LINK msabench_kernels_common ${arg_LINK})
  msabench_cuda_flags(plugin_${name} "${arg_ARCHITECTURES}")
  target_link_options(plugin_${name} PRIVATE "-Wl,--version-script=${PROJECT_SOURCE_DIR}/kernels/exports.map")
  install(TARGETS plugin_${name} LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}/msabench" COMPONENT runtime)
endfunction()
