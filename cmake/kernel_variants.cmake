# The CPU kernels' sources, compiled once per instruction set. Also used by
# tests/neon, which has no other part of the build.
set(MLXX_ROOT ${CMAKE_CURRENT_LIST_DIR}/..)

# mlxx_kernel_variant(<target> <set> <Table> <flags>... SOURCES ...): those
# sources for one instruction set, added to the target. A product and a sum are
# never fused behind our back, so that every path through a kernel rounds alike.
function(mlxx_kernel_variant target set table)
  cmake_parse_arguments(ARG "" "" "SOURCES" ${ARGN})
  list(TRANSFORM ARG_SOURCES PREPEND ${MLXX_ROOT}/mlxx/kernels/)
  add_library(mlxx_kernels_${set} OBJECT ${ARG_SOURCES})
  target_include_directories(mlxx_kernels_${set} PRIVATE ${MLXX_ROOT})
  target_compile_definitions(
    mlxx_kernels_${set}
    PRIVATE MLXX_PANEL_KERNELS=kPanelKernels${table} MLXX_BYTE_KERNELS=kByteKernels${table} MLXX_BYTE_TILES=byte_tiles_${set}
            MLXX_DENSE_KERNELS=kDenseKernels${table}
            MLXX_ROW_KERNELS=kRowKernels${table} MLXX_LAYER_KERNELS=kLayerKernels${table} MLXX_RECURRENT_KERNELS=kRecurrentKernels${table}
            MLXX_CHOICE_KERNELS=kChoiceKernels${table} MLXX_BLOCK_ATTENTION=kBlockAttention${table} MLXX_ATTENTION_TILES=kAttentionTiles${table} MLXX_GEMM_KERNELS=kGemmKernels${table})
  target_compile_options(mlxx_kernels_${set} PRIVATE -O3 -ffp-contract=off -Wall -Wextra
                                                     ${ARG_UNPARSED_ARGUMENTS})
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:mlxx_kernels_${set}>)
endfunction()

# mlxx_add_kernel_variants(<target>): every variant of the processor's family.
function(mlxx_add_kernel_variants target)
  set(bytes quantized_matmul/byte_kernels_cpu.cpp quantized_matmul/byte_tiles_cpu.cpp)
  set(all attention/attention_tiles_cpu.cpp attention/block_attention_cpu.cpp matmul/gemm_kernels_cpu.cpp quantized_matmul/dense_kernels_cpu.cpp quantized_matmul/panel_kernels_cpu.cpp
          layer_kernels_cpu.cpp recurrent_kernels_cpu.cpp row_kernels_cpu.cpp
          token_choice/choice_kernels_cpu.cpp ${bytes})
  mlxx_kernel_variant(${target} portable Portable SOURCES ${all})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    set(avx2 -mavx2 -mfma -mf16c)
    set(avx512 ${avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
    mlxx_kernel_variant(${target} avx2 Avx2 ${avx2} SOURCES ${all})
    mlxx_kernel_variant(${target} avx512 Avx512 ${avx512} SOURCES ${all})
    mlxx_kernel_variant(${target} avx512vnni Avx512Vnni ${avx512} -mavx512vnni SOURCES ${bytes})
    mlxx_kernel_variant(${target} avx512bf16 Avx512Bf16 ${avx512} -mavx512vnni -mavx512bf16 SOURCES
                        quantized_matmul/dense_kernels_cpu.cpp)
    target_compile_definitions(${target} PRIVATE MLXX_HAS_X86_KERNELS)
  elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
    set(dotprod -march=armv8.2-a+fp16+dotprod)
    mlxx_kernel_variant(${target} dotprod Dotprod ${dotprod} SOURCES ${bytes})
    mlxx_kernel_variant(${target} i8mm I8mm ${dotprod}+i8mm SOURCES ${bytes})
    target_compile_definitions(${target} PRIVATE MLXX_HAS_ARM_KERNELS)
  endif()
endfunction()
