#pragma once

#include "mlxx/generate/sampler.h"
#include "mlxx/generate/sampling.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/kernels/token_choice/token_choice.h"

// The options of sampling as kernels take them: the CPU's
// (kernels/token_choice) and those of libmlxx_cuda.
namespace mlxx::generate {

// Each use of randomness within one step draws from numbers of its own.
enum class Draw : uint64_t { token = 0, xtc = 1 };

// For one seed and draw, distinct steps give distinct keys.
kernels::RandomKey random_key(const SampleKey& key, Draw draw);

// What a Sampler of these options does for one row.
void set_sampling(
    const SamplingOptions& options,
    const SampleKey& key,
    kernels::TokenChoice& choice);
// What LogitsProcessors do; the tokens are set by the caller.
void set_processors(
    const SamplingOptions& options,
    kernels::TokenChoice& choice);

// The kernels that the environment asks for, on the calling thread alone.
kernels::Selection sampling_kernels();
// Whether choose_tokens_cpu() is what chooses from these logits.
bool chooses_by_kernel(
    const kernels::Selection& selection,
    const mx::array& logits);

// The plug-in whose kernels choose from these logits, on an NVIDIA device; else
// null.
const kernels::CudaPlugin* chooses_on_cuda(
    const kernels::Selection& selection,
    const mx::array& logits);
// The options as these kernels take them; nothing if they can't.
std::optional<kernels::cuda::TokenSampling> cuda_sampling(
    const SamplingOptions& options,
    const SampleKey& key);

}  // namespace mlxx::generate
