// What certifies the maps (MATH: capacity), each as one number that would not be small if it did not hold.
#pragma once

#include "eval/capacity_keys.h"

namespace kata {

// Largest |nu(R x, R y) - nu(x, y)| over all pairs of `draws` random keys, R a random isometry of the map.
double isometry_error(const KeyMap& map, int64_t draws, uint64_t seed);
const char* isometry_name(Isometry isometry);

// Least nu of two of the keys: at least 0 for a cone.
double smallest_score(const KeyMap& map, int64_t draws, uint64_t seed);

// Largest |P(lambda q) - P(q)| with the weights P_s = score(q, k_s) / sum_s score(q, k_s) of a normalised
// read, each key as the query of all keys, lambda from 1e-3 to 1e3.
double scale_error(const KeyMap& map, int64_t draws, uint64_t seed);

// Parameters of a small model with this map less those of the same model with raw scores.
int64_t added_parameters(const KeyMap& map);

// A random matrix [size, size] of real numbers, complex numbers or quaternions (field 1, 2, 4) with
// orthonormal rows; entry (i, j) starts at (i size + j) field.
std::vector<double> random_unitary(int64_t size, int64_t field, const Philox& numbers);
// out = matrix x, [size] of the field; out is not x.
void apply_matrix(double* out, const std::vector<double>& matrix, const double* x, int64_t size,
                  int64_t field);

}  // namespace kata
