#pragma once

#include <memory>

#include "mlxx/base/mapped_file.h"
#include "mlxx/core/quantized_rows.h"
#include "mlxx/hub/gguf_file.h"
#include "mlxx/hub/gguf_repack.h"

namespace mlxx::hub {

// The rows of a Q4_0, Q4_1, Q8_0 or IQ4_NL matrix; null for another tensor. The
// values are those of repack_gguf(). Pages that were read are given back when
// the object goes, which must be before the file does. Errors: bad_file if the
// file shrank.
std::unique_ptr<const QuantizedRows> gguf_rows(
    const MappedFile& file,
    const GgufTensor& tensor,
    const RowOrder& order);

}  // namespace mlxx::hub
