#include "eval/capacity_theory.h"

#include <cmath>

namespace kata {

namespace {

// E |g|^(2 k) of a Gaussian of `width` coordinates: width (width + 2) .. (width + 2 k - 2).
double moment(double width, int k) {
  double product = 1;
  for (int i = 0; i < k; ++i) product *= width + 2 * i;
  return product;
}

}  // namespace

double raw_power(int64_t width) {
  return 1 / static_cast<double>(width);
}

double squares_power(int64_t squares, int64_t width) {
  const auto k = static_cast<double>(squares);
  return k * (k + 2) / moment(static_cast<double>(width), 2);
}

double psd_power(int64_t groups, int64_t width) {
  const auto m = static_cast<double>(groups), p = static_cast<double>(width), e = p / m;
  const double q = m * moment(e, 2) / moment(p, 2);
  const double q2 = (m * moment(e, 4) + m * (m - 1) * moment(e, 2) * moment(e, 2)) / moment(p, 4);
  return (2 * q + 1) / moment(p, 2) / q2;
}

// With a_i = |x_i|^2 and g_ij = <x_i, x_j>^2 for i < j, q = sum a_i^2 + 2 sum g_ij. The products in q^2 by
// the groups that they share, for Gaussian x:
double psd_sum_power(int64_t groups, int64_t width) {
  const auto m = static_cast<double>(groups), p = static_cast<double>(width), e = p / m;
  const double pairs = m * (m - 1) / 2;
  const double q = (m + e + 1) / (p + 2);
  const double aa = m * moment(e, 4) + m * (m - 1) * moment(e, 2) * moment(e, 2);
  const double ag = pairs * (2 * moment(e, 3) + (m - 2) * moment(e, 2) * e);
  const double gg = pairs * 3 * moment(e, 2)                  // the same pair
                    + 2 * pairs * (m - 2) * moment(e, 2)      // one group in common
                    + pairs * (m - 2) * (m - 3) / 2 * e * e;  // none
  const double q2 = (aa + 4 * ag + 4 * gg) / moment(p, 4);
  return (2 * m * q + m * m) / moment(p, 2) / q2;
}

double orthant_power(int64_t width) {
  const auto p = static_cast<double>(width);
  return (1 + (p - 1) / (M_PI * M_PI)) * (p + 2) / (p * (p + 5));
}

double lorentz_power(int64_t width) {
  const auto p = static_cast<double>(width);
  const auto t = [p](int k) { return moment(1, k) / moment(p, k); };  // E t^k
  // score = <h, h'> + b b' with b = |h| (1 + t): E <h, h'>^2 = (E |h|^2)^2 / (p - 1), and the cross term is
  // 0.
  const double h = 1 - t(1), b = 1 + t(1) - t(2) - t(3);
  const double q2 = 4 - 4 * t(2) - 4 * t(3) + t(4) + 2 * t(5) + t(6);
  return (h * h / (p - 1) + b * b) / q2;
}

double welch_bound(int64_t keys, int64_t width) {
  if (keys <= width) return 0;
  const auto t = static_cast<double>(keys), p = static_cast<double>(width);
  return std::sqrt((t - p) / (p * (t - 1)));
}

double packing_bound(int64_t field, int64_t width, double eps) {
  const double m = static_cast<double>(width) / static_cast<double>(field);
  if (field == 1) return 0.5 * std::pow(1 - eps, -(m - 1) / 2);
  if (field == 2) return 0.5 * std::pow(1 - eps, -(m - 1));
  return 0.5 * std::pow(1 - eps, -(2 * m - 2)) / (1 + (2 * m - 2) * eps);
}

}  // namespace kata
