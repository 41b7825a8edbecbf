# SPDX-License-Identifier: Apache-2.0
# msabench_check_portable(LIST): refuses PTX of less than sm_90. On a newer device a driver compiles it without the waits that only
# sm_90 has, while kernels there are launched to overlap (kernels/cuda/launch.cuh).
# As a script: cmake -DLIST=... -P cuda_portable.cmake
function(msabench_check_portable list)
  foreach(architecture IN LISTS list)
    if(architecture STREQUAL "native") # of the device here, without PTX
      continue()
    endif()
    if(NOT architecture MATCHES "^([0-9]+)[af]?(-real|-virtual)?$")
      message(FATAL_ERROR "MSABENCH_CUDA_PORTABLE: ${architecture} is no architecture; write numbers, as in 80-real;90-real")
    endif()
    if(CMAKE_MATCH_1 LESS 90 AND NOT CMAKE_MATCH_2 STREQUAL "-real")
      message(FATAL_ERROR "MSABENCH_CUDA_PORTABLE: ${architecture} has PTX of less than sm_90, in which kernels don't wait for each other on newer devices; write ${CMAKE_MATCH_1}-real, and take PTX from 90-virtual on")
    endif()
  endforeach()
endfunction()

if(CMAKE_SCRIPT_MODE_FILE)
  msabench_check_portable("${LIST}")
endif()
