#include "nn/parameters.h"

#include <cmath>

#include "base/parallel.h"
#include "base/philox.h"

namespace kata {

namespace {

uint64_t hash_name(const std::string& name) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

Tensor slice(const Tensor& flat, const Parameter& p) {
  return flat.rows(p.offset, p.offset + p.shape.numel()).view(p.shape);
}

double draw_one(const Init& init, const Philox& random, uint64_t index) {
  const auto between = [&](double low, double high) { return low + (high - low) * random.uniform(index); };
  switch (init.kind) {
    case Init::Kind::normal:
      return init.low * random.normal(index);
    case Init::Kind::uniform:
      return init.high * (2 * random.uniform(index) - 1);
    case Init::Kind::constant:
      return init.low;
    case Init::Kind::log_of_uniform:
      return std::log(init.high - (init.high - init.low) * random.uniform(index));  // uniform() is below 1
    case Init::Kind::inverse_softplus:
      return std::log(std::expm1(std::exp(between(std::log(init.low), std::log(init.high)))));
  }
  return 0;
}

template <class T>
void draw(T* x, const Parameter& p, uint64_t seed) {
  const Philox random(seed ^ hash_name(p.name), stream_init);
  parallel_blocks(p.shape.numel(), 65536, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      x[i] = static_cast<T>(draw_one(p.init, random, static_cast<uint64_t>(i)));
  });
}

}  // namespace

Parameter& Parameters::add(const std::string& name, const Shape& shape, Init init, bool decay) {
  for (const Parameter& p : parameters_) KATA_CHECK(p.name != name, "parameter {} exists", name);
  parameters_.push_back({name, shape, init, decay, 0, {}, {}});
  count_ += shape.numel();
  if (decay) decayed_ += shape.numel();
  return parameters_.back();
}

void Parameters::bind(const Tensor& values, const Tensor& gradients, const Tensor& copy) {
  int64_t front = 0, back = decayed_;
  values_ = values.defined() ? values : Tensor(nullptr, master_dtype(), {count_});
  gradients_ = gradients.defined() ? gradients : Tensor(nullptr, master_dtype(), {count_});
  copy_ = copy.defined() || !has_copy() ? copy : Tensor(nullptr, dtype_, {decayed_});
  for (Parameter& p : parameters_) {
    int64_t& at = p.decay ? front : back;
    p.offset = at;
    at += p.shape.numel();
    p.value = slice(p.decay && has_copy() ? copy_ : values_, p);
    p.gradient = slice(gradients_, p);
  }
}

void Parameters::initialise(uint64_t seed, const Tensor& flat) const {
  for (const Parameter& p : parameters_) {
    if (flat.dtype() == DType::f32)
      draw(slice(flat, p).as<float>(), p, seed);
    else
      draw(slice(flat, p).as<double>(), p, seed);
  }
}

Parameter& Parameters::find(const std::string& name) {
  for (Parameter& p : parameters_)
    if (p.name == name) return p;
  KATA_CHECK(false, "no parameter {}", name);
}

std::vector<std::pair<std::string, Tensor>> Parameters::named(const Tensor& flat) const {
  std::vector<std::pair<std::string, Tensor>> out;
  for (const Parameter& p : parameters_) out.emplace_back(p.name, slice(flat, p));
  return out;
}

}  // namespace kata
