#include "base/safetensors_set.h"

#include <set>

#include "base/json_file.h"
#include "base/log.h"

namespace kata {

namespace {

using nlohmann::json;

constexpr const char* single_file = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr uint64_t index_limit = 16 << 20;  // bytes: some 200,000 tensors
constexpr size_t most_files = 10'000;       // each is mapped at the same time

// The file of a tensor as the index writes it: a name beside the index, no path out of the folder.
const std::string& file_name(const std::string& path, const std::string& tensor, const json& value) {
  if (!value.is_string())
    fail(ExitCode::data, "{}: weight_map: {}: expected the name of a file, found {}", path,
         name_in_quotes(tensor), value.type_name());
  const auto& name = value.get_ref<const std::string&>();
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos)
    fail(ExitCode::data, "{}: weight_map: {}: {} is no name of a file in this folder", path,
         name_in_quotes(tensor), name_in_quotes(name));
  return name;
}

void check_total_size(const std::string& path, const json& index, uint64_t found) {
  const auto metadata = index.find("metadata");
  if (metadata == index.end()) return;
  const auto total = metadata->is_object() ? metadata->find("total_size") : metadata->end();
  if (!metadata->is_object() || (total != metadata->end() && !total->is_number()))
    fail(ExitCode::data, "{}: metadata.total_size: expected a number of bytes", path);
  // Some writers count a tensor that two names share twice: what the files hold was checked on its own.
  if (total != metadata->end() && total->get<double>() != static_cast<double>(found))
    logger().warn("{}: metadata.total_size is {}, the tensors take {} bytes", path, total->dump(), found);
}

}  // namespace

SafetensorsSet::SafetensorsSet(const std::string& folder) {
  if (!is_folder(folder)) fail(ExitCode::data, "{}: expected a folder with {}", folder, single_file);
  path_ = folder + "/" + single_file;
  if (path_exists(path_)) {
    files_.emplace_back(path_);
    names_ = files_[0].names();
    for (const std::string& name : names_) file_of_[name] = 0;
    return;
  }
  path_ = folder + "/" + index_file;
  if (!path_exists(path_))
    fail(ExitCode::data, "{}: holds neither {} nor {}; other formats of weights are not read", folder,
         single_file, index_file);
  read_index();
}

void SafetensorsSet::read_index() {
  const std::string folder = path_.substr(0, path_.size() - std::char_traits<char>::length(index_file));
  const json index = read_json_object(path_, index_limit);
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object())
    fail(ExitCode::data, "{}: weight_map: expected an object of tensors and their files", path_);
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) files.insert(file_name(path_, tensor, file));
  if (files.size() > most_files)
    fail(ExitCode::data, "{}: names {} files, at most {} are read", path_, files.size(), most_files);
  uint64_t bytes = 0;
  for (const std::string& file : files) {
    if (!path_exists(folder + file))
      fail(ExitCode::data, "{}: weight_map names {}, which is missing; fetch the model again", path_,
           name_in_quotes(file));
    const SafetensorsFile& opened = files_.emplace_back(folder + file);
    for (const std::string& name : opened.names()) {
      const auto mapped = map->find(name);
      if (mapped == map->end() || *mapped != file)
        fail(ExitCode::data, "{}: tensor {}: weight_map of {} puts it {}", opened.path(),
             name_in_quotes(name), index_file, mapped == map->end() ? "nowhere" : "into " + mapped->dump());
      file_of_[name] = files_.size() - 1;
      names_.push_back(name);
      bytes += opened.info(name).end - opened.info(name).begin;
    }
  }
  for (const auto& [tensor, file] : map->items())
    if (!file_of_.contains(tensor))
      fail(ExitCode::data, "{}: weight_map: tensor {} is not in {}", path_, name_in_quotes(tensor),
           file.dump());
  check_total_size(path_, index, bytes);
}

const SafetensorsFile& SafetensorsSet::file(const std::string& name) const {
  const auto found = file_of_.find(name);
  if (found == file_of_.end()) fail(ExitCode::data, "{}: tensor {} is missing", path_, name_in_quotes(name));
  return files_[found->second];
}

void write_safetensors_set(const std::string& folder, const NamedTensors& tensors, uint64_t limit,
                           const TextMap& metadata) {
  std::vector<NamedTensors> parts(1);
  uint64_t total = 0, in_part = 0;
  for (const auto& entry : tensors) {
    const uint64_t bytes = entry.second.bytes();
    if (!parts.back().empty() && in_part + bytes > limit) {
      parts.emplace_back();
      in_part = 0;
    }
    parts.back().push_back(entry);
    in_part += bytes;
    total += bytes;
  }
  if (parts.size() == 1) {
    write_safetensors(folder + "/" + single_file, tensors, metadata);
    return;
  }
  json map = json::object();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, parts.size());
    write_safetensors(folder + "/" + name, parts[i], metadata);
    for (const auto& entry : parts[i]) map[entry.first] = name;
  }
  const json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file_atomic(folder + "/" + index_file, index.dump(2) + "\n");
}

}  // namespace kata
