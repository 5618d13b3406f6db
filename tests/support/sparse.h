// Arrays above 2^31 elements that take memory only where they are touched.
#pragma once

#include <sys/mman.h>

#include "base/tensor.h"

namespace kata::test {

// Zeros until written. data() is null where the system refuses so much address space.
template <class T>
class SparseArray {
 public:
  explicit SparseArray(int64_t n) : bytes_(static_cast<size_t>(n) * sizeof(T)) {
    void* p =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) return;
    madvise(p, bytes_, MADV_NOHUGEPAGE);  // a touched element costs a page of 4 KiB, not of 2 MiB
    data_ = static_cast<T*>(p);
  }
  ~SparseArray() {
    if (data_) munmap(data_, bytes_);
  }
  SparseArray(const SparseArray&) = delete;
  SparseArray& operator=(const SparseArray&) = delete;

  T* data() const { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  Tensor tensor(const Shape& shape) const { return Tensor(data_, dtype_of<T>, shape); }

 private:
  T* data_ = nullptr;
  size_t bytes_;
};

}  // namespace kata::test

// Skips a test where an array could not be mapped.
#define KATA_SKIP_UNLESS_MAPPED(array) \
  if ((array).data() == nullptr) GTEST_SKIP() << "the system gives no such address space"
