#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "mlxx/base/json.h"
#include "mlxx/embed/encoder.h"

namespace mlxx::embed {

// The families of encoders; each makes an empty one of the shapes that the
// checkpoint's config.json asks for.
std::unique_ptr<Encoder> make_bert(
    const hub::Checkpoint& checkpoint,
    EncoderPurpose purpose);
std::unique_ptr<Encoder> make_modern_bert(
    const hub::Checkpoint& checkpoint,
    EncoderPurpose purpose);

// A decoder of mlxx/models whose DecoderSpec says all.
std::unique_ptr<Encoder> make_decoder_encoder(
    const hub::Checkpoint& checkpoint,
    EncoderPurpose purpose);

// Whether some tensor's name begins with `prefix`: a model that was saved with
// a head has its encoder under such a name.
bool has_prefix(const hub::Checkpoint& checkpoint, std::string_view prefix);

// How many scores a classification head gives, as transformers reads it:
// "id2label", else "num_labels", else 2.
int read_labels(const JsonView& config);

}  // namespace mlxx::embed
