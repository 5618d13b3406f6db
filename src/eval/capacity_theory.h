// What is known of random keys and of sets of keys (MATH: capacity); p is the width of a key.
//
// Power per key: c = E score(x, y)^2 / E score(x, x)^2 for independent x, y, uniform on the unit sphere of
// R^p. With x fixed, a score that is a quadratic form of y has E (y^T B y)^2 = (2 tr B^2 + (tr B)^2) / (p (p
// + 2)); moments of x come from Gaussian ones, since |g| and g / |g| are independent. Below, E = p / M is the
// width of a group and q = score(x, x).
//
//   raw           1 / p
//   K squares     K (K + 2) / (p (p + 2)), where the score is the sum of <x, J_k y>^2 over K images J_k y of
//                 y that are orthonormal: then B is a projector of rank K, and q = 1. psd M = 1: K = 1, 3 /
//                 (p (p + 2)). hermitian: K = 2, with m = p / 2 it is 2 / (m (m + 1)). quaternionic: K = 4,
//                 with m = p / 4 it is 3 / (m (2 m + 1)).
//   psd           (2 E q + 1) / (p (p + 2)) over E q^2, q = sum_i |x_i|^4: B = sum_i x_i x_i^T per group
//   psd_sum       (2 M E q + M^2) / (p (p + 2)) over E q^2, q = sum_ij <x_i, x_j>^2: B is M times the sum
//   orthant       (1 + (p - 1) / pi^2) (p + 2) / (p (p + 5)), without the map's 1e-6; 1 / pi^2 as p grows
//   lorentz       from the moments of t = tau^2: |h|^2 = 1 - t, q = 2 - t^2 - t^3; 1/4 as p grows
//
// Means are taken on both sides, not per key: orthant has keys without a positive coordinate, whose own score
// is next to 0. Where q is constant (raw, K squares) the two are the same.
#pragma once

#include <cstdint>

namespace kata {

double raw_power(int64_t width);
double squares_power(int64_t squares, int64_t width);
double psd_power(int64_t groups, int64_t width);
double psd_sum_power(int64_t groups, int64_t width);
double orthant_power(int64_t width);
double lorentz_power(int64_t width);

// max |<u_i, u_j>| of T unit keys is at least this; 0 where T <= p.
double welch_bound(int64_t keys, int64_t width);

// Keys with nu <= eps that exist for squared lengths of projections over the real numbers, complex numbers or
// quaternions (field 1, 2, 4). Kept keys to which none can be added cover the sphere: each with the keys that
// score above eps with it, a share P of the sphere. So there are at least 1 / P of them; half of that is
// claimed, which greedy packing keeps long before it is saturated. P <= (1 - eps)^((p - 1) / 2) over the real
// numbers; the squared length is a Beta variable, which gives P = (1 - eps)^(m - 1) over the complex numbers
// (m = p / 2) and P = (1 - eps)^(2 m - 2) (1 + (2 m - 2) eps) over the quaternions (m = p / 4).
double packing_bound(int64_t field, int64_t width, double eps);

}  // namespace kata
