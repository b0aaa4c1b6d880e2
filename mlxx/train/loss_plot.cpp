#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "mlxx/train/metrics_file.h"

namespace mlxx::train {

namespace {

constexpr double kWidth = 800;
constexpr double kHeight = 480;
constexpr double kLeft = 70;
constexpr double kRight = 20;
constexpr double kTop = 30;
constexpr double kBottom = 50;

struct Curve {
  const char* key;
  const char* name;
  const char* color;
  std::vector<std::pair<double, double>> points = {};
};

// Round steps, about five of them: 1, 2 or 5 times a power of ten.
double tick_step(double range) {
  const double raw = range / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) {
      return factor * power;
    }
  }
  return 10 * power;
}

struct Axis {
  double low = 0;
  double high = 1;
  double from = 0;  // of the picture
  double to = 1;

  double at(double value) const {
    return from + (value - low) / (high - low) * (to - from);
  }
};

Axis axis_of(
    const std::vector<Curve>& curves,
    double std::pair<double, double>::* part,
    double from,
    double to) {
  double low = INFINITY;
  double high = -INFINITY;
  for (const auto& curve : curves) {
    for (const auto& point : curve.points) {
      low = std::min(low, point.*part);
      high = std::max(high, point.*part);
    }
  }
  if (!(low < high)) {
    const double middle = std::isfinite(low) ? low : 0;
    low = middle - 0.5;
    high = middle + 0.5;
  }
  return {low, high, from, to};
}

std::string ticks(const Axis& axis, bool horizontal) {
  std::string text;
  const double step = tick_step(axis.high - axis.low);
  for (double value = std::ceil(axis.low / step) * step;
       value <= axis.high + step * 1e-9;
       value += step) {
    const double place = axis.at(value);
    const std::string number =
        fmt::format("{:.6g}", std::abs(value) < step * 1e-9 ? 0 : value);
    if (horizontal) {
      text += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
          place,
          kHeight - kBottom + 20,
          number);
    } else {
      text += fmt::format(
          "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" "
          "stroke=\"#ddd\"/>\n"
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n",
          kLeft,
          place,
          kWidth - kRight,
          place,
          kLeft - 8,
          place + 4,
          number);
    }
  }
  return text;
}

std::string line_of(const Curve& curve, const Axis& x, const Axis& y) {
  std::string points;
  std::string dots;
  for (const auto& [iteration, loss] : curve.points) {
    const double px = x.at(iteration);
    const double py = y.at(loss);
    points += fmt::format("{:.1f},{:.1f} ", px, py);
    if (curve.points.size() < 40) {
      dots += fmt::format(
          "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>\n",
          px,
          py,
          curve.color);
    }
  }
  return fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" "
      "stroke-width=\"2\"/>\n{}",
      points,
      curve.color,
      dots);
}

}  // namespace

std::string loss_plot(const std::vector<MetricsLine>& lines) {
  std::vector<Curve> curves = {
      {"loss", "training loss", "#1f77b4"},
      {"validation_loss", "validation loss", "#d62728"}};
  for (auto& curve : curves) {
    for (const auto& line : lines) {
      auto found = line.numbers.find(curve.key);
      if (found != line.numbers.end() && std::isfinite(found->second)) {
        curve.points.emplace_back(
            static_cast<double>(line.iteration),
            found->second);
      }
    }
  }
  const Axis x = axis_of(
      curves,
      &std::pair<double, double>::first,
      kLeft,
      kWidth - kRight);
  const Axis y = axis_of(
      curves,
      &std::pair<double, double>::second,
      kHeight - kBottom,
      kTop);
  std::string text = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      kWidth,
      kHeight);
  text += ticks(y, false) + ticks(x, true);
  text += fmt::format(
      "<polyline points=\"{0:.1f},{1:.1f} {0:.1f},{2:.1f} {3:.1f},{2:.1f}\" "
      "fill=\"none\" stroke=\"#444\"/>\n"
      "<text x=\"{4:.1f}\" y=\"{5:.1f}\" text-anchor=\"middle\">iteration"
      "</text>\n",
      kLeft,
      kTop,
      kHeight - kBottom,
      kWidth - kRight,
      (kLeft + kWidth - kRight) / 2,
      kHeight - 12);
  double legend = kLeft + 20;
  for (const auto& curve : curves) {
    if (curve.points.empty()) {
      continue;
    }
    text += line_of(curve, x, y);
    text += fmt::format(
        "<text x=\"{:.1f}\" y=\"20\" fill=\"{}\">{}</text>\n",
        legend,
        curve.color,
        curve.name);
    legend += 130;
  }
  return text + "</svg>\n";
}

}  // namespace mlxx::train
