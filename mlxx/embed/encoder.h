#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "mlxx/core/parameters.h"
#include "mlxx/embed/pooling.h"
#include "mlxx/embed/token_rows.h"
#include "mlxx/hub/checkpoint.h"
#include "mlxx/kernels/select.h"
#include "mlxx/models/model.h"

namespace mlxx::embed {

// A transformer that turns tokens into vectors, and perhaps a head that turns
// those into scores. Immutable once loaded; all calls from the MLX thread.
class Encoder {
 public:
  virtual ~Encoder() = default;

  struct Summary {
    std::string model_type;
    int layers = 0;
    int hidden_size = 0;
    int vocab_size = 0;
    int types = 1;       // of tokens, by the text of a pair; 1: it reads none
    int max_tokens = 0;  // that the positions allow; 0 if unknown
    Pooling default_pooling = Pooling::mean;  // where no module says one
    int labels = 0;  // scores of the head; 0: there is no head
  };
  virtual Summary summary() const = 0;

  // The last hidden states, [T, E]. Lazy. A row depends on the rows of its own
  // input only; on the CPU with our kernels its bits do.
  virtual mx::array forward(const TokenRows& rows) const = 0;

  // Hidden states -> scores of the head, [N, labels]. unsupported if there is
  // no head.
  virtual mx::array classify(const mx::array& hidden, const TokenRows& rows)
      const;

  virtual void visit(const ParameterVisitor& visitor) = 0;
  virtual void use(const kernels::Selection& selection) = 0;
  // Whether an entry of the checkpoint that is no parameter may be left out.
  virtual bool skips(const std::string& tensor) const = 0;
};

enum class EncoderPurpose {
  vectors,  // the hidden states; heads of the checkpoint are left out
  scores,   // a classification head as well
};

// Whether `model_type` is a transformer that only makes vectors or scores: no
// language model of mlxx/models.
bool is_encoder(std::string_view model_type);

// Builds what config.json's model_type names and loads its weights, with the
// rules and errors of models::load_model(). unsupported for another type, with
// what is known, and for one that has no such head.
std::shared_ptr<const Encoder> load_encoder(
    const hub::Checkpoint& checkpoint,
    EncoderPurpose purpose,
    const models::LoadOptions& options = {});

}  // namespace mlxx::embed
