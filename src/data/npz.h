// NumPy's .npz: a zip archive of .npy members, here stored without compression. Read by numpy.load as it is.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"

namespace kata {

struct NpzArray {
  using Sink = std::function<void(const void* data, size_t bytes)>;

  std::string name;            // member "<name>.npy"
  std::string dtype;           // NumPy's: "<i8", "<U5"
  std::vector<int64_t> shape;  // empty: a scalar
  // Gives all elements in row-major order, little-endian. Called twice (once for the checksum), so it must
  // give the same bytes again.
  std::function<void(const Sink&)> elements;
};

// ExitCode::usage when the archive would reach 4 GiB, the limit of a plain zip. Only shapes and types are
// looked at.
void check_npz_size(const std::string& path, const std::vector<NpzArray>& arrays);

// Atomic. The same arrays give the same bytes: members carry the zip epoch (1980) as their time.
void write_npz(const std::string& path, const std::vector<NpzArray>& arrays);

// A stored, row-major .npz; every length, offset and checksum is verified when it is opened.
class NpzFile {
 public:
  struct Entry {
    std::string name, dtype;
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;  // the elements; need not be aligned
  };

  explicit NpzFile(const std::string& path);  // ExitCode::data
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  MappedFile map_;
  std::vector<Entry> entries_;
};

// Bytes of one element: "<i8" 8, "<U5" 20; 0 for a type that is not understood.
int64_t npy_item_bytes(const std::string& dtype);

}  // namespace kata
