#include "mlxx/kernels/linear_cross_entropy/linear_cross_entropy.h"

#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/core/custom_vjp.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/linear_cross_entropy/device_scores.h"
#include "mlxx/kernels/linear_cross_entropy/packed_scores.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// Rows whose logits are there at one time.
constexpr int kRows = 256;
constexpr int kDeviceRows = 512;

mx::array float_number(float value) {
  return mx::array(value, mx::float32);
}

mx::array rows_between(const mx::array& x, int begin, int end) {
  mx::Shape from(x.ndim(), 0);
  mx::Shape to = x.shape();
  from[0] = begin;
  to[0] = end;
  return mx::slice(x, from, to);
}

// A call's weights with the products that both passes take.
class Scores {
 public:
  explicit Scores(const LogitForm& form) : form_(form), weight_(*form.weight) {
    if (form.bias) {
      bias_ = form.bias->value();
    }
    // On a GPU large products take dense numbers, which are made once here, not
    // once for every piece and pass.
    if (backend() != Backend::cpu && weight_.quantization() &&
        !weight_.packed()) {
      dense_ = dequantize_rows(weight_, mx::arange(weight_.shape()[0]));
    }
  }

  // [n, E] -> [n, V]
  mx::array product(const mx::array& rows, const mx::array* weight) const {
    if (dense_) {
      return mx::matmul(rows, mx::transpose(mx::astype(*dense_, rows.dtype())));
    }
    if (weight_.packed() || weight_.quantization()) {
      return quantized_matmul(rows, weight_);
    }
    const mx::array& w = weight ? *weight : weight_.value();
    return weight_.product() ? (*weight_.product())(rows, w)
                             : mx::matmul(rows, mx::transpose(w));
  }

  // [n, V] -> [n, E]: the derivative of the product.
  mx::array pulled_back(
      const mx::array& d,
      const mx::array& rows,
      const mx::array* weight) const {
    return mx::vjp(
               [&](const Arrays& x) { return Arrays{product(x[0], weight)}; },
               {rows},
               {mx::astype(d, rows.dtype())})
        .second[0];
  }

  // The product's [n, V] as logits in float32.
  mx::array logits(const mx::array& product, const mx::array* bias) const {
    mx::array l = mx::astype(product, mx::float32);
    if (form_.factor != 1) {
      l = mx::multiply(l, float_number(form_.factor));
    }
    if (bias) {
      mx::array b = mx::astype(*bias, mx::float32);
      l = mx::add(l, mx::multiply(b, float_number(form_.bias_factor)));
    }
    if (form_.softcap != 0) {
      mx::array cap = float_number(form_.softcap);
      l = mx::multiply(mx::tanh(mx::divide(l, cap)), cap);
    }
    return l;
  }

  struct Part {
    mx::array score;     // [n]
    mx::array change;    // [n, V]: derivative of the score in the product
    mx::array in_logit;  // in what bias * bias_factor is added to
  };

  Part part(
      const mx::array& rows,
      const mx::array& targets,
      const mx::array* weight,
      const mx::array* bias) const {
    mx::array y = product(rows, weight);
    if (!bias && !form_.trains_weight) {
      auto scored = device_scores(y, targets, form_.factor, form_.softcap);
      return {scored.scores, scored.change, scored.change};
    }
    mx::array l = logits(y, bias);
    mx::array target = mx::expand_dims(targets, 1);
    mx::array all = mx::logsumexp(l, 1, true);
    mx::array chosen = mx::take_along_axis(l, target, 1);
    mx::array is_target =
        mx::equal(mx::expand_dims(mx::arange(l.shape(1)), 0), target);
    mx::array change = mx::subtract(
        mx::astype(is_target, mx::float32),
        mx::exp(mx::subtract(l, all)));
    if (form_.softcap != 0) {
      mx::array part = mx::divide(l, float_number(form_.softcap));
      change =
          mx::multiply(change, mx::subtract(float_number(1), mx::square(part)));
    }
    return {
        mx::squeeze(mx::subtract(chosen, all), 1),
        form_.factor == 1 ? change
                          : mx::multiply(change, float_number(form_.factor)),
        change};
  }

  const LogitForm& form() const {
    return form_;
  }
  const std::optional<mx::array>& bias() const {
    return bias_;
  }
  const mx::array& weight() const {
    return weight_.value();
  }

 private:
  LogitForm form_;
  Parameter weight_;
  std::optional<mx::array> bias_;
  std::optional<mx::array> dense_;
};

template <typename Use>
void in_pieces(int count, const Use& use) {
  int step = backend() == Backend::cpu ? kRows : kDeviceRows;
  for (int at = 0; at < count; at += step) {
    use(at, std::min(at + step, count));
  }
}

mx::array joined(const Arrays& parts) {
  return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0);
}

// Scores [N] and the gradient of each in its row, [N, E].
Arrays
scores_of(const Scores& head, const mx::array& rows, const mx::array& targets) {
  Arrays scores;
  Arrays gradients;
  const mx::array* bias = head.bias() ? &*head.bias() : nullptr;
  in_pieces(rows.shape(0), [&](int begin, int end) {
    mx::array piece = rows_between(rows, begin, end);
    if (!gradients.empty() && backend() != Backend::cpu) {
      // Or MLX computes the logits of all pieces before it uses the first ones.
      piece = mx::depends({piece}, {gradients.back()})[0];
    }
    auto part =
        head.part(piece, rows_between(targets, begin, end), nullptr, bias);
    scores.push_back(part.score);
    if (!head.form().differentiable) {
      return;
    }
    gradients.push_back(head.pulled_back(part.change, piece, nullptr));
  });
  Arrays result{joined(scores)};
  if (!gradients.empty()) {
    result.push_back(joined(gradients));
  }
  return result;
}

mx::array frozen_scores(
    const mx::array& rows,
    const mx::array& targets,
    const LogitForm& form,
    const Selection& selection) {
  auto head = std::make_shared<const Scores>(form);
  bool packed = packed_scores_covers(rows, form, selection);
  auto compute = [=](const Arrays& x) {
    return packed ? packed_scores(x[0], targets, head->form(), selection)
                  : scores_of(*head, x[0], targets);
  };
  if (!form.differentiable) {
    return mx::stop_gradient(compute({rows})[0]);
  }
  auto function = custom_vjp(
      "linear cross-entropy",
      compute,
      [](const Arrays& x, const Arrays& d, const Arrays& out) {
        mx::array by = mx::expand_dims(d[0], 1);
        return Arrays{mx::astype(
            mx::multiply(mx::astype(out[1], mx::float32), by),
            x[0].dtype())};
      });
  return function({rows})[0];
}

// x: rows, weight, bias if there is one.
Arrays trained_gradients(
    const Scores& head,
    const Arrays& x,
    const mx::array& targets,
    const mx::array& d) {
  Arrays rows;
  std::optional<mx::array> weight;
  std::optional<mx::array> bias;
  auto add = [](std::optional<mx::array>& sum, const mx::array& part) {
    sum = sum ? mx::add(*sum, part) : part;
  };
  in_pieces(x[0].shape(0), [&](int begin, int end) {
    mx::array piece = rows_between(x[0], begin, end);
    auto part = head.part(
        piece,
        rows_between(targets, begin, end),
        &x[1],
        x.size() > 2 ? &x[2] : nullptr);
    mx::array by = mx::expand_dims(rows_between(d, begin, end), 1);
    mx::array pulled = mx::astype(mx::multiply(part.change, by), piece.dtype());
    auto both = mx::vjp(
                    [&](const Arrays& in) {
                      return Arrays{head.product(in[0], &in[1])};
                    },
                    {piece, x[1]},
                    {pulled})
                    .second;
    rows.push_back(both[0]);
    add(weight, mx::astype(both[1], mx::float32));
    if (x.size() > 2) {
      add(bias,
          mx::multiply(
              mx::sum(mx::multiply(part.in_logit, by), 0),
              float_number(head.form().bias_factor)));
    }
  });
  Arrays result{joined(rows), *weight};
  if (bias) {
    result.push_back(*bias);
  }
  return result;
}

mx::array trained_scores(
    const mx::array& rows,
    const mx::array& targets,
    const LogitForm& form) {
  auto head = std::make_shared<const Scores>(form);
  auto function = custom_vjp(
      "linear cross-entropy",
      [=](const Arrays& x) {
        Arrays scores;
        in_pieces(x[0].shape(0), [&](int begin, int end) {
          scores.push_back(head->part(
                                   rows_between(x[0], begin, end),
                                   rows_between(targets, begin, end),
                                   &x[1],
                                   x.size() > 2 ? &x[2] : nullptr)
                               .score);
        });
        return Arrays{joined(scores)};
      },
      [=](const Arrays& x, const Arrays& d, const Arrays&) {
        return trained_gradients(*head, x, targets, d[0]);
      });
  Arrays inputs{rows, head->weight()};
  if (head->bias()) {
    inputs.push_back(*head->bias());
  }
  return function(inputs)[0];
}

}  // namespace

mx::array linear_log_probabilities(
    const mx::array& rows,
    const mx::array& targets,
    const LogitForm& form,
    const Selection& selection) {
  if (rows.ndim() != 2 || targets.ndim() != 1 ||
      rows.shape(0) != targets.shape(0) || form.weight->shape().size() != 2 ||
      rows.shape(1) != form.weight->shape()[1]) {
    fail(
        ErrorKind::internal,
        "linear cross-entropy",
        "shapes of rows, targets and weight do not fit");
  }
  if (form.trains_weight &&
      (form.weight->packed() || form.weight->quantization())) {
    fail(
        ErrorKind::internal,
        "linear cross-entropy",
        "a weight that is not dense cannot be trained");
  }
  if (rows.shape(0) == 0) {
    return mx::zeros({0}, mx::float32);
  }
  return form.trains_weight ? trained_scores(rows, targets, form)
                            : frozen_scores(rows, targets, form, selection);
}

}  // namespace mlxx::kernels
