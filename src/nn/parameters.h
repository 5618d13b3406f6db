// All parameters of a model: one flat buffer of values, one of gradients, with named views.
//
// Decayed parameters (2-D weights, the embedding included) come first, so that AdamW is two calls on two
// ranges. Values and gradients are Wide (base/dtype.h). Beside 16-bit activations the layers read the 2-D
// weights from a third buffer, their copy in 16 bits, and the others from the masters.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor.h"

namespace kata {

struct Init {
  enum class Kind { normal, uniform, constant, log_of_uniform, inverse_softplus };
  Kind kind = Kind::constant;
  double low = 0, high = 0;

  static Init normal(double deviation) { return {Kind::normal, deviation, deviation}; }
  static Init uniform(double bound) { return {Kind::uniform, -bound, bound}; }
  static Init constant(double value) { return {Kind::constant, value, value}; }
  // exp(x) uniform in [low, high] and above 0
  static Init log_of_uniform(double low, double high) { return {Kind::log_of_uniform, low, high}; }
  // log softplus(x) uniform between log low and log high
  static Init inverse_softplus(double low, double high) { return {Kind::inverse_softplus, low, high}; }
};

struct Parameter {
  std::string name;
  Shape shape;
  Init init;
  bool decay = false;      // weight decay applies
  int64_t offset = 0;      // elements from the start of the flat buffers
  Tensor value, gradient;  // value: as layers read it
};

class Parameters {
 public:
  explicit Parameters(DType dtype) : dtype_(dtype) {}  // of activations
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  // References stay valid. Names are unique (a duplicate is an internal error).
  Parameter& add(const std::string& name, const Shape& shape, Init init, bool decay);

  // Lays the parameters out and points their views at the flat buffers; with undefined or null tensors the
  // views are null (planning). `gradients` may be undefined for inference. copy: [decayed_count()] of
  // dtype(), where has_copy().
  void bind(const Tensor& values, const Tensor& gradients, const Tensor& copy = {});

  // Draws every value: a pure function of the seed, the parameter's name and the element's index. Into host
  // memory laid out as values().
  void initialise(uint64_t seed, const Tensor& flat) const;
  void initialise(uint64_t seed) const { initialise(seed, values_); }

  DType dtype() const { return dtype_; }
  DType master_dtype() const { return wide(dtype_); }
  bool has_copy() const { return dtype_ != wide(dtype_); }
  int64_t count() const { return count_; }            // elements in all
  int64_t decayed_count() const { return decayed_; }  // elements in front that decay
  Tensor values() const { return values_; }
  Tensor gradients() const { return gradients_; }
  Tensor copy() const { return copy_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter& find(const std::string& name);  // internal error when absent
  // (name, view into flat) in the order of registration; flat is any buffer laid out as values() is.
  std::vector<std::pair<std::string, Tensor>> named(const Tensor& flat) const;

 private:
  DType dtype_;
  std::deque<Parameter> parameters_;
  Tensor values_, gradients_, copy_;
  int64_t count_ = 0, decayed_ = 0;
};

}  // namespace kata
