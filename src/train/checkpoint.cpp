#include "train/checkpoint.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "base/log.h"

namespace kata {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

constexpr const char* model_file = "model.safetensors";
constexpr const char* optimizer_file = "optimizer.safetensors";
constexpr const char* config_file = "config.yaml";
constexpr const char* state_file = "state.json";
constexpr const char* format_name = "kata checkpoint";
constexpr int format_version = 1;
constexpr const char* replaced_suffix = ".replaced";

// A checkpoint that is there but torn or altered: the one before it may serve.
class Damaged : public Error {
 public:
  explicit Damaged(const std::string& message) : Error(ExitCode::data, message) {}
};

template <class... Args>
[[noreturn]] void damaged(const std::string& path, fmt::format_string<Args...> format, Args&&... args) {
  throw Damaged(fmt::format("{}: {}; the checkpoint is damaged", path,
                            fmt::format(format, std::forward<Args>(args)...)));
}

// ---- names ----

std::string step_name(int64_t step) {
  return fmt::format("step-{:08d}", step);
}

// A folder of a step: "step-00000100", or the one that a save of the same step has set aside.
struct StepFolder {
  int64_t step = 0;
  bool replaced = false;
  std::string name() const { return step_name(step) + (replaced ? replaced_suffix : ""); }
};

std::optional<StepFolder> parse_name(std::string name) {
  StepFolder found;
  if (name.ends_with(replaced_suffix)) {
    found.replaced = true;
    name.resize(name.size() - std::strlen(replaced_suffix));
  }
  if (!name.starts_with("step-")) return std::nullopt;
  const char* begin = name.data() + 5;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(begin, end, found.step);
  if (parsed.ec != std::errc() || parsed.ptr != end || name != step_name(found.step)) return std::nullopt;
  return found;
}

// Newest first; the folder of a step before the one that it replaces.
std::vector<StepFolder> list_steps(const std::string& root) {
  std::vector<StepFolder> steps;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error))
    if (const auto found = parse_name(it->path().filename().string())) steps.push_back(*found);
  if (error) fail_file(ExitCode::data, "cannot list the folder", root, error.value());
  std::sort(steps.begin(), steps.end(), [](const StepFolder& a, const StepFolder& b) {
    return a.step != b.step ? a.step > b.step : a.replaced < b.replaced;
  });
  return steps;
}

// ---- finite numbers ----

// The position of the first infinity or NaN, or nothing.
template <class T>
std::optional<int64_t> first_non_finite(const T* x, int64_t n) {
  constexpr int64_t block = 4096;
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(begin + block, n);
    int bad = 0;
#pragma omp simd reduction(+ : bad)
    for (int64_t i = begin; i < end; ++i) bad += x[i] - x[i] == 0 ? 0 : 1;
    if (bad == 0) continue;
    for (int64_t i = begin; i < end; ++i)
      if (!std::isfinite(x[i])) return i;
  }
  return std::nullopt;
}

}  // namespace

std::string non_finite_text(const Tensor& tensor) {
  std::optional<int64_t> at;
  double value = 0;
  if (tensor.dtype() == DType::f32 && (at = first_non_finite(tensor.as<float>(), tensor.numel())))
    value = tensor.as<float>()[*at];
  if (tensor.dtype() == DType::f64 && (at = first_non_finite(tensor.as<double>(), tensor.numel())))
    value = tensor.as<double>()[*at];
  if (!at) return "";
  std::string index;
  int64_t rest = *at;
  for (int i = tensor.rank() - 1; i >= 0; --i) {
    index = std::to_string(rest % tensor.dim(i)) + (index.empty() ? "" : ", ") + index;
    rest /= tensor.dim(i);
  }
  return fmt::format("{} at [{}]", value, index);
}

namespace {

bool finite(const json& value) {
  if (value.is_number_float()) return std::isfinite(value.get<double>());
  return std::all_of(value.begin(), value.end(),
                     [&](const json& inner) { return !value.is_structured() || finite(inner); });
}

// ---- saving ----

// The text of state.json for a checksum; it stands at the very end, where reading expects it.
std::string with_checksum(const std::string& body, const std::string& checksum) {
  return fmt::format("{}\"checksum\": \"{}\"\n}}\n", body, checksum);
}
const size_t checksum_line = with_checksum("", "00000000").size();

std::string state_text(const CheckpointContents& contents, const std::map<std::string, FileSummary>& files) {
  json listed = json::object();
  for (const auto& [name, summary] : files)
    listed[name] = {{"bytes", summary.bytes}, {"crc32", crc32_text(summary.crc32)}};
  const std::string body = fmt::format(
      "{{\n\"format\": \"{}\",\n\"version\": {},\n\"step\": {},\n\"files\": {},\n\"state\": {},\n",
      format_name, format_version, contents.step, listed.dump(1), contents.state.dump(1));
  return with_checksum(body, crc32_text(crc32(with_checksum(body, "00000000"))));
}

void write_folder(const std::string& folder, const CheckpointContents& contents) {
  std::map<std::string, FileSummary> files;
  files[model_file] = write_safetensors(folder + "/" + model_file, contents.model);
  files[optimizer_file] = write_safetensors(folder + "/" + optimizer_file, contents.optimizer);
  files[config_file] = write_file_atomic(folder + "/" + config_file, contents.config);
  for (const auto& [name, bytes] : contents.extra) {
    const bool usable = !name.empty() && name[0] != '.' && name.find('/') == std::string::npos;
    KATA_CHECK(usable && name != state_file && !files.contains(name), "\"{}\" cannot name a file here", name);
    files[name] = write_file_atomic(folder + "/" + name, bytes);
  }
  write_file_atomic(folder + "/" + state_file, state_text(contents, files));
}

void rename_folder(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_file(ExitCode::data, "cannot write", to, errno);
}

// Deletes a folder such that a kill meanwhile leaves it whole or under a name that nobody reads.
void discard(const std::string& root, const std::string& name) {
  const std::string aside = root + "/.tmp-old-" + name;
  rename_folder(root + "/" + name, aside);
  std::error_code error;
  fs::remove_all(aside, error);
  if (error) fail_file(ExitCode::data, "cannot remove", aside, error.value());
}

// Finishes or undoes what a killed save left.
void clean_up(const std::string& root) {
  remove_temporaries(root);
  for (const StepFolder& folder : list_steps(root)) {
    if (!folder.replaced) continue;
    const std::string current = root + "/" + step_name(folder.step);
    if (path_exists(current))
      discard(root, folder.name());
    else
      rename_folder(root + "/" + folder.name(), current);
  }
}

// Gives the complete folder its name, where one of the same step may stand.
void publish(const std::string& root, const std::string& aside, int64_t step) {
  const std::string target = root + "/" + step_name(step);
  const std::string old = target + replaced_suffix;
  const bool replaces = path_exists(target);
  if (replaces) rename_folder(target, old);
  if (::rename(aside.c_str(), target.c_str()) != 0) {
    const int number = errno;
    if (replaces) rename_folder(old, target);
    fail_file(ExitCode::data, "cannot write", target, number);
  }
  sync_folder(root);
}

// After a save: the folder that it replaced, and with keep_last > 0 what lies further back. Steps above this
// one stay: they belong to a continuation that was given up and are replaced when reached.
void remove_older(const std::string& root, int64_t step, int64_t keep_last) {
  int64_t seen = 0;
  for (const StepFolder& folder : list_steps(root)) {
    const bool keep = folder.step > step || (!folder.replaced && (keep_last == 0 || ++seen <= keep_last));
    if (keep) continue;
    try {
      discard(root, folder.name());
    } catch (const Error& error) {
      logger().warn("an old checkpoint stays: {}", error.what());
    }
  }
}

void check_contents(const CheckpointContents& contents) {
  KATA_CHECK(contents.step >= 0, "step {}", contents.step);
  KATA_CHECK(finite(contents.state), "the state {} holds an infinity or NaN", contents.state.dump());
  for (const auto* tensors : {&contents.model, &contents.optimizer})
    for (const auto& [name, tensor] : *tensors)
      if (const std::string text = non_finite_text(tensor); !text.empty())
        fail(ExitCode::numeric,
             "step {} was not saved: {} holds {}; the run has diverged, resume from the checkpoint before "
             "with a lower "
             "optimizer.lr",
             contents.step, name, text);
}

}  // namespace

std::string save_checkpoint(const std::string& run_folder, const CheckpointContents& contents,
                            int64_t keep_last) {
  KATA_CHECK(keep_last >= 0, "keep_last {}", keep_last);
  check_contents(contents);
  const std::string root = run_folder + "/checkpoints";
  const std::string name = step_name(contents.step);
  const std::string aside = root + "/.tmp-" + name;
  make_directories(root);
  clean_up(root);
  try {
    make_directories(aside);
    write_folder(aside, contents);
    publish(root, aside, contents.step);
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(aside, ignored);
    throw;
  }
  write_file_atomic(root + "/latest", name + "\n");
  remove_older(root, contents.step, keep_last);
  return root + "/" + name;
}

// ---- opening ----

namespace {

struct State {
  int64_t step = 0;
  json state;
  std::map<std::string, FileSummary> files;
};

// Thrown away where the text is not the JSON that this version writes.
State parse_state(const std::string& path, const std::string& text) {
  try {
    json all = json::parse(text);
    if (all.at("format") != format_name || all.at("version") != format_version)
      fail(ExitCode::data, "{}: format \"{}\" version {}; this program reads \"{}\" version {}", path,
           all.at("format").get<std::string>(), all.at("version").dump(), format_name, format_version);
    State state;
    state.step = all.at("step").get<int64_t>();
    state.state = std::move(all.at("state"));
    for (const auto& [name, entry] : all.at("files").items()) {
      FileSummary& file = state.files[name];
      const std::string digits = entry.at("crc32").get<std::string>();
      file.bytes = entry.at("bytes").get<uint64_t>();
      std::from_chars(digits.data(), digits.data() + digits.size(), file.crc32, 16);
    }
    for (const char* name : {model_file, optimizer_file, config_file})
      if (!state.files.contains(name)) damaged(path, "does not list {}", name);
    return state;
  } catch (const json::exception& error) {
    damaged(path, "is not the state of a checkpoint ({})", error.what());
  }
}

State read_state(const std::string& folder) {
  const std::string path = folder + "/" + state_file;
  const std::string text = read_file(path);
  if (text.size() < checksum_line) damaged(path, "has {} bytes, it is truncated", text.size());
  const std::string body = text.substr(0, text.size() - checksum_line);
  const std::string expected = with_checksum(body, crc32_text(crc32(with_checksum(body, "00000000"))));
  if (text != expected) damaged(path, "its checksum does not fit its text");
  return parse_state(path, text);
}

void verify(const std::string& path, const FileSummary& expected, std::string_view bytes) {
  if (bytes.size() != expected.bytes)
    damaged(path, "has {} bytes, {} lists {}", bytes.size(), state_file, expected.bytes);
  const uint32_t found = crc32(bytes);
  if (found != expected.crc32)
    damaged(path, "has CRC-32 {}, {} lists {}", crc32_text(found), state_file, crc32_text(expected.crc32));
}

std::set<std::string> entries_of(const std::string& folder) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    names.insert(it->path().filename().string());
  if (error) fail_file(ExitCode::data, "cannot list the folder", folder, error.value());
  return names;
}

}  // namespace

Checkpoint open_step_folder(const std::string& folder) {
  std::set<std::string> present = entries_of(folder);
  if (present.erase(state_file) == 0) damaged(folder + "/" + state_file, "is missing");
  State state = read_state(folder);
  const auto named = parse_name(fs::path(folder).filename().string());
  if (named && named->step != state.step)
    damaged(folder + "/" + state_file, "is of step {}, the folder's name is not", state.step);
  for (const auto& [name, expected] : state.files) {
    const std::string path = folder + "/" + name;
    if (present.erase(name) == 0) damaged(path, "is missing");
    if (is_folder(path)) damaged(path, "is a folder");
    const InputFile file(path);
    if (file.size() != expected.bytes)  // before it is mapped
      damaged(path, "has {} bytes, {} lists {}", file.size(), state_file, expected.bytes);
    const MappedFile mapped(file, MappedFile::Access::sequential);
    verify(path, expected, {reinterpret_cast<const char*>(mapped.data()), mapped.size()});
  }
  if (!present.empty())
    damaged(folder + "/" + *present.begin(), "is not listed in {}; remove it if you have put it there",
            state_file);
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  checkpoint.step_ = state.step;
  checkpoint.state_ = std::move(state.state);
  checkpoint.files_ = std::move(state.files);
  return checkpoint;
}

namespace {

// What `latest` names; nothing, with a warning, where it is missing or holds something else.
std::optional<StepFolder> read_latest(const std::string& root) {
  const std::string path = root + "/latest";
  if (!path_exists(path)) {
    logger().warn("{} is missing; looking for the newest complete checkpoint", path);
    return std::nullopt;
  }
  std::string text = read_file(path);
  if (text.ends_with('\n')) text.pop_back();
  const auto named = parse_name(text);
  if (!named || named->replaced) {
    logger().warn("{} is damaged (it holds no name of a step); looking for the newest complete checkpoint",
                  path);
    return std::nullopt;
  }
  return named;
}

Checkpoint open_run_folder(const std::string& run_folder) {
  const std::string root = run_folder + "/checkpoints";
  std::vector<StepFolder> steps = list_steps(root);
  if (steps.empty())
    fail(ExitCode::data, "{}: holds no checkpoint; train first, or give another run folder", root);
  if (const auto latest = read_latest(root)) {
    std::erase_if(steps, [&](const StepFolder& folder) { return folder.step > latest->step; });
    if (steps.empty() || steps[0].step != latest->step || steps[0].replaced)
      logger().warn("{}/{}, the latest checkpoint, is missing; trying the one before it", root,
                    latest->name());
  }
  for (const StepFolder& folder : steps) {
    try {
      return open_step_folder(root + "/" + folder.name());
    } catch (const Damaged& error) {
      logger().warn("{}; trying the one before it", error.what());
    }
  }
  fail(ExitCode::data, "{}: holds no complete checkpoint; restore one from a copy or train again", root);
}

std::string joined(const std::vector<std::string>& names) {
  constexpr size_t shown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), shown); ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > shown) text += fmt::format(" and {} more", names.size() - shown);
  return text;
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  if (!path_exists(folder)) fail_file(ExitCode::data, "cannot open the checkpoint", path, ENOENT);
  if (!is_folder(folder))
    fail(ExitCode::data,
         "cannot open the checkpoint {}: it is a file; give a run folder or one of its step folders", path);
  if (is_folder(folder + "/checkpoints")) return open_run_folder(folder);
  if (parse_name(fs::path(folder).filename().string()) || path_exists(folder + "/" + state_file))
    return open_step_folder(folder);
  fail(ExitCode::data,
       "{}: holds no checkpoint; expected a run folder (with checkpoints/latest) or a step folder (with {})",
       path, state_file);
}

std::string Checkpoint::read(const std::string& file) const {
  const std::string path = folder_ + "/" + file;
  const auto found = files_.find(file);
  if (found == files_.end()) fail(ExitCode::data, "{}: this checkpoint holds no such file", path);
  std::string bytes = read_file(path);
  verify(path, found->second, bytes);
  return bytes;
}

void Checkpoint::read_tensors(const std::string& file, const NamedTensors& into) const {
  const SafetensorsFile source(folder_ + "/" + file);
  std::set<std::string> unused(source.names().begin(), source.names().end());
  std::vector<std::string> missing;
  for (const auto& [name, tensor] : into)
    if (unused.erase(name) == 0) missing.push_back(name);
  if (!missing.empty() || !unused.empty())
    fail(ExitCode::data, "{}: belongs to another model:{}{}{}{}{}", source.path(),
         missing.empty() ? "" : " missing ", joined(missing), !missing.empty() && !unused.empty() ? ";" : "",
         unused.empty() ? "" : " unexpected ", joined({unused.begin(), unused.end()}));
  for (const auto& [name, tensor] : into) {
    source.read_into(name, tensor);
    if (const std::string text = non_finite_text(tensor); !text.empty())
      fail(ExitCode::data, "{}: tensor \"{}\" holds {}; the run had diverged, use an earlier checkpoint",
           source.path(), name, text);
  }
}

}  // namespace kata
