// The tensors of a model in one safetensors file or in several, as Hugging Face lays them into a folder
// (EVAL: file formats):
//
//   FOLDER/model.safetensors                       all tensors, or
//   FOLDER/model-00001-of-00003.safetensors ...    parts of them, and
//   FOLDER/model.safetensors.index.json            {metadata: {total_size}, weight_map: {tensor: file}}
//
// The index and the files must agree exactly: every file it names is there, every tensor stands in the file
// that it names, and no file holds another one. Anything else is ExitCode::data with file and tensor.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "base/safetensors.h"

namespace kata {

class SafetensorsSet {
 public:
  // Where a folder has both, the single file is the model, as for other readers.
  explicit SafetensorsSet(const std::string& folder);

  const std::string& path() const { return path_; }  // of the single file, or of the index
  const std::vector<std::string>& names() const { return names_; }
  bool contains(const std::string& name) const { return file_of_.contains(name); }
  // The file that holds a tensor; ExitCode::data for an unknown one.
  const SafetensorsFile& file(const std::string& name) const;

 private:
  void read_index();

  std::string path_;
  std::vector<SafetensorsFile> files_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, size_t> file_of_;
};

// Writes the tensors into a folder that exists: one file where their data take at most `limit` bytes,
// otherwise as many files as needed, cut between tensors (one above the limit stands alone), and the index.
void write_safetensors_set(const std::string& folder, const NamedTensors& tensors, uint64_t limit,
                           const TextMap& metadata = {});

}  // namespace kata
