#pragma once

#include "mlxx/core/parameters.h"
#include "mlxx/kernels/select.h"

namespace mlxx::kernels {

// x [..., depth] times matrix [depth, columns] -> [..., columns], in the dtype
// that the two promote to. Differentiable in both, any number of times: the
// gradients are products of the same kind, each computed only if it is asked
// for.
//
// With CPU kernels, numbers of float32, float16 and bfloat16 are multiplied and
// summed in float32 and rounded once, and a row's bits depend neither on other
// rows nor on threads. Else, and for other dtypes, mx::matmul, which on the CPU
// takes half precision number by number.
// Errors: internal, for shapes that do not fit.
mx::array
matmul(const mx::array& x, const mx::array& matrix, const Selection& selection);

// x [..., in] times the transpose of a dense weight [out, in].
mx::array matmul_transposed(
    const mx::array& x,
    const mx::array& weight,
    const Selection& selection);

// What parameters are given as their product. With CPU kernels,
// matmul_transposed(); on CUDA mx::matmul on all rows at once. Null where plain
// operations are asked for, and on Metal: mx::matmul, exactly as mlx-lm calls
// it. That there is one tells quantized_matmul() too that it may choose.
std::shared_ptr<const DenseProduct> dense_product(const Selection& selection);

}  // namespace mlxx::kernels
