// safetensors files: named tensors in one file that other tools read (EVAL: file formats).
//
//   8 bytes       header length N, little-endian, at most 100,000,000
//   N bytes       JSON: name -> {dtype, shape, data_offsets: [begin, end)}, and __metadata__: text -> text
//   the rest      the data; sorted by offset, the tensors tile it exactly: no gap, overlap or tail
//
// The reader is strict: whatever breaks a rule of the format is ExitCode::data with the file, the tensor and
// the rule, before any data is touched. A file that is shorter or longer than its header says is refused.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/tensor.h"

namespace kata {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using TextMap = std::map<std::string, std::string>;

struct TensorInfo {
  std::string dtype;           // "F32", "BF16", ... as the file says
  std::vector<int64_t> shape;  // of any rank; row-major; [] is a scalar
  uint64_t begin = 0;          // bytes [begin, end) of the data
  uint64_t end = 0;
  std::string shape_text() const;  // "[2, 3]"
};

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<std::string>& names() const { return names_; }  // in the order of their data
  const TextMap& metadata() const { return metadata_; }
  bool contains(const std::string& name) const { return tensors_.contains(name); }
  const TensorInfo& info(const std::string& name) const;  // an unknown name is ExitCode::data
  std::span<const std::byte> bytes(const std::string& name) const;

  // Copies a tensor into memory of the caller: contiguous, of the same shape and type. F16 and BF16 are
  // widened, F64 rounded into f32. ExitCode::data with file, tensor, expected and found where they differ.
  void read_into(const std::string& name, const Tensor& to) const;

 private:
  // The header, and where the data begin in the file.
  struct Header;
  explicit SafetensorsFile(Header header);

  std::string path_;
  TextMap metadata_;
  std::unordered_map<std::string, TensorInfo> tensors_;
  std::vector<std::string> names_;
  uint64_t data_begin_ = 0;
  MappedFile file_;
};

// Writes the tensors (contiguous, names distinct) in the order given, through write_file_atomic; the data
// begin at a multiple of 8. Returns size and CRC-32 of the whole file.
FileSummary write_safetensors(const std::string& path, const NamedTensors& tensors,
                              const TextMap& metadata = {});

}  // namespace kata
