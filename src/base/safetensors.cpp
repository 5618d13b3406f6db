#include "base/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

#include "base/json_file.h"

namespace kata {

namespace {

constexpr uint64_t header_limit = 100'000'000;
constexpr const char* metadata_key = "__metadata__";
constexpr const char* repair =
    "; the file is damaged or was not written as safetensors, fetch or write it again";

// Bits of an element, 0 for a name that the format does not have.
uint64_t bits_of(const std::string& dtype) {
  static const std::unordered_map<std::string, uint64_t> bits = {
      {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"BOOL", 8},        {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}};
  const auto found = bits.find(dtype);
  return found == bits.end() ? 0 : found->second;
}

const char* file_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "F32";
    case DType::f64:
      return "F64";
    case DType::bf16:
      return "BF16";
    case DType::i32:
      return "I32";
    case DType::i64:
      return "I64";
    case DType::u16:
      return "U16";
    case DType::u8:
      return "U8";
  }
  return "?";
}

// The position of the first byte that is no UTF-8 (overlong forms, surrogates and values above U+10FFFF
// included), or nothing.
std::optional<size_t> first_bad_utf8(std::string_view text) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size();) {
    const unsigned char lead = at(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) return i;
    for (size_t k = 1; k < length; ++k)
      if ((at(i + k) & 0xC0) != 0x80) return i;
    const unsigned char second = at(i + 1);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F))
      return i;
    i += length;
  }
  return std::nullopt;
}

// Takes the events of the JSON parser, which so builds no tree, and knows at every depth what may come.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(const std::string& path) : path_(path) {}

  std::unordered_map<std::string, TensorInfo> tensors;
  TextMap metadata;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override { return unexpected(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return unexpected(text); }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (where_ == Where::shape && value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      entry_.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (where_ == Where::offsets && offsets_ < 2) {
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
      return true;
    }
    return unexpected(std::to_string(value));
  }

  bool string(string_t& text) override {
    if (where_ == Where::metadata)
      metadata[field_] = text;
    else if (where_ == Where::entry && field_ == "dtype")
      entry_.dtype = text;
    else
      return unexpected("the text " + name_in_quotes(text));
    return true;
  }

  bool start_object(size_t) override {
    if (where_ == Where::outside)
      where_ = Where::root;
    else if (where_ == Where::root)
      where_ = name_ == metadata_key ? Where::metadata : Where::entry;
    else
      return unexpected("an object");
    entry_ = {};
    seen_.clear();
    return true;
  }

  bool key(string_t& text) override {
    if (where_ == Where::root) {
      if (tensors.contains(text) || (text == metadata_key && has_metadata_))
        broken(fmt::format("the name {} appears twice", name_in_quotes(text)));
      has_metadata_ = has_metadata_ || text == metadata_key;
      name_ = text;
      return true;
    }
    if (where_ == Where::entry && text != "dtype" && text != "shape" && text != "data_offsets")
      broken(fmt::format("{} has the unknown field {}; expected dtype, shape and data_offsets",
                         name_in_quotes(name_), name_in_quotes(text)));
    if (!seen_.emplace(text, true).second)
      broken(fmt::format("{} has the field {} twice", name_in_quotes(name_), name_in_quotes(text)));
    field_ = text;
    return true;
  }

  bool end_object() override {
    if (where_ == Where::entry) {
      for (const char* field : {"dtype", "shape", "data_offsets"})
        if (!seen_.contains(field)) broken(fmt::format("{} has no field {}", name_in_quotes(name_), field));
      tensors.emplace(name_, entry_);
    }
    where_ = where_ == Where::root ? Where::outside : Where::root;
    return true;
  }

  bool start_array(size_t) override {
    if (where_ != Where::entry || field_ == "dtype") return unexpected("an array");
    where_ = field_ == "shape" ? Where::shape : Where::offsets;
    offsets_ = 0;
    return true;
  }

  bool end_array() override {
    if (where_ == Where::offsets && offsets_ != 2)
      broken(fmt::format("{} has {} data_offsets, expected [begin, end]", name_in_quotes(name_), offsets_));
    where_ = Where::entry;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail(ExitCode::data, "{}: the header is not valid JSON at byte {} of the file{}", path_, position + 7,
         repair);
  }

 private:
  enum class Where { outside, root, metadata, entry, shape, offsets };

  [[noreturn]] void broken(const std::string& what) const {
    fail(ExitCode::data, "{}: header: {}{}", path_, what, repair);
  }

  bool unexpected(const std::string& found) const {
    switch (where_) {
      case Where::metadata:
        broken(fmt::format("__metadata__ {}: expected a text, found {}", name_in_quotes(field_), found));
      case Where::shape:
        broken(fmt::format("{}: shape: expected integers from 0 to 2^63 - 1, found {}", name_in_quotes(name_),
                           found));
      case Where::offsets:
        broken(fmt::format("{}: data_offsets: expected two integers from 0, found {}", name_in_quotes(name_),
                           found));
      case Where::entry:
        broken(fmt::format("{}: {}: expected {}, found {}", name_in_quotes(name_), field_,
                           field_ == "dtype" ? "a text" : "an array", found));
      case Where::root:
        broken(fmt::format("{}: expected an object, found {}", name_in_quotes(name_), found));
      case Where::outside:
        break;
    }
    broken(fmt::format("expected an object, found {}", found));
  }

  std::string path_;
  Where where_ = Where::outside;
  bool has_metadata_ = false;
  std::string name_, field_;
  std::map<std::string, bool> seen_;
  TensorInfo entry_;
  int offsets_ = 0;
};

void check_size(const std::string& path, const std::string& name, const TensorInfo& info) {
  const auto broken = [&](const std::string& what) {
    fail(ExitCode::data, "{}: tensor {}: {}{}", path, name_in_quotes(name), what, repair);
  };
  uint64_t amount = bits_of(info.dtype);
  if (amount == 0)
    fail(ExitCode::data,
         "{}: tensor {}: unknown dtype {}; write it again as F32, BF16 or another type of the format", path,
         name_in_quotes(name), name_in_quotes(info.dtype));
  if (info.begin > info.end) broken(fmt::format("data_offsets [{}, {}] run backwards", info.begin, info.end));
  uint64_t elements = 1;
  bool overflow = false;
  for (const int64_t dim : info.shape)
    overflow = overflow || __builtin_mul_overflow(elements, static_cast<uint64_t>(dim), &elements);
  overflow = overflow || __builtin_mul_overflow(amount, elements, &amount);
  if (overflow) broken(fmt::format("shape {} has more elements than 64 bits count", info.shape_text()));
  if (amount % 8 != 0)
    broken(fmt::format("shape {} of {} does not end at a whole byte", info.shape_text(), info.dtype));
  if (info.end - info.begin != amount / 8)
    broken(fmt::format("shape {} of {} needs {} bytes, data_offsets [{}, {}] hold {}", info.shape_text(),
                       info.dtype, amount / 8, info.begin, info.end, info.end - info.begin));
}

// The tensors by offset must follow each other without a gap or an overlap. Returns the end of the last one.
uint64_t check_tiling(const std::string& path, const std::vector<std::string>& names,
                      const std::unordered_map<std::string, TensorInfo>& tensors) {
  uint64_t expected = 0;
  for (const std::string& name : names) {
    const TensorInfo& info = tensors.at(name);
    if (info.begin != expected)
      fail(ExitCode::data, "{}: tensor {} begins at byte {} of the data, expected {} ({}){}", path,
           name_in_quotes(name), info.begin, expected,
           info.begin < expected ? "it overlaps the one before" : "a gap", repair);
    expected = info.end;
  }
  return expected;
}

float widen_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu, fraction = half & 0x3FFu;
  if (exponent == 0) {  // zero or subnormal: fraction units of 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float widen_bfloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

template <class From, class Convert>
void convert_all(float* to, std::span<const std::byte> from, Convert convert) {
  for (size_t i = 0; i < from.size() / sizeof(From); ++i) {
    From value;  // the data need not be aligned
    std::memcpy(&value, from.data() + sizeof(From) * i, sizeof(From));
    to[i] = convert(value);
  }
}

}  // namespace

std::string TensorInfo::shape_text() const {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

struct SafetensorsFile::Header {
  explicit Header(const std::string& path);

  InputFile file;
  uint64_t data_begin = 0;
  HeaderReader content;
  std::vector<std::string> names;
};

SafetensorsFile::Header::Header(const std::string& path) : file(path), content(path) {
  const auto refuse = [&](const std::string& what) { fail(ExitCode::data, "{}: {}{}", path, what, repair); };
  if (file.size() < 8) refuse(fmt::format("has {} bytes, a safetensors file has at least 8", file.size()));
  uint64_t length = 0;
  file.read_at(0, &length, 8);
  if (length > header_limit)
    refuse(fmt::format("the header would have {} bytes, at most {} are allowed", length, header_limit));
  data_begin = 8 + length;
  if (data_begin > file.size())
    refuse(fmt::format("the header ends at byte {}, the file at {}", data_begin, file.size()));
  std::string text(length, '\0');
  file.read_at(8, text.data(), length);
  if (!text.starts_with('{')) refuse("the header does not begin with {");
  if (const auto bad = first_bad_utf8(text))
    refuse(fmt::format("the header is not UTF-8 at byte {}", *bad + 8));
  // The JSON parser takes a zero byte for the end of its input.
  if (const size_t zero = text.find('\0'); zero != std::string::npos)
    refuse(fmt::format("the header is not valid JSON at byte {} of the file", zero + 8));
  nlohmann::json::sax_parse(text, &content);

  for (const auto& [name, info] : content.tensors) {
    check_size(path, name, info);
    names.push_back(name);
  }
  std::sort(names.begin(), names.end(), [&](const std::string& a, const std::string& b) {
    const TensorInfo &first = content.tensors.at(a), &second = content.tensors.at(b);
    return std::tie(first.begin, first.end, a) < std::tie(second.begin, second.end, b);
  });
  const uint64_t end = check_tiling(path, names, content.tensors);
  if (end > file.size() - data_begin)
    refuse(fmt::format("the data of the tensors take {} bytes, the file holds {} (truncated)", end,
                       file.size() - data_begin));
  if (end < file.size() - data_begin)
    refuse(fmt::format("{} bytes follow the last tensor", file.size() - data_begin - end));
}

SafetensorsFile::SafetensorsFile(const std::string& path) : SafetensorsFile(Header(path)) {}

SafetensorsFile::SafetensorsFile(Header header)
    : path_(header.file.path()),
      metadata_(std::move(header.content.metadata)),
      tensors_(std::move(header.content.tensors)),
      names_(std::move(header.names)),
      data_begin_(header.data_begin),
      file_(header.file, MappedFile::Access::sequential) {}

const TensorInfo& SafetensorsFile::info(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    fail(ExitCode::data, "{}: no tensor {} among its {}{}", path_, name_in_quotes(name), names_.size(),
         names_.empty() ? "" : fmt::format(" (the first is {})", name_in_quotes(names_[0])));
  return found->second;
}

std::span<const std::byte> SafetensorsFile::bytes(const std::string& name) const {
  const TensorInfo& tensor = info(name);
  return file_.bytes().subspan(data_begin_ + tensor.begin, tensor.end - tensor.begin);
}

void SafetensorsFile::read_into(const std::string& name, const Tensor& to) const {
  KATA_CHECK(to.contiguous(), "{} is read into a strided tensor", name);
  const TensorInfo& found = info(name);
  bool same_shape = found.shape.size() == static_cast<size_t>(to.rank());
  for (size_t i = 0; same_shape && i < found.shape.size(); ++i)
    same_shape = found.shape[i] == to.dim(static_cast<int>(i));
  const bool converts = found.dtype == "F16" || found.dtype == "BF16" || found.dtype == "F64";
  const bool same_type = found.dtype == file_dtype(to.dtype()) || (converts && to.dtype() == DType::f32);
  if (!same_shape || !same_type)
    fail(ExitCode::data, "{}: tensor {}: expected {} {}, found {} {}; the file belongs to another model",
         path_, name_in_quotes(name), file_dtype(to.dtype()), to.shape().str(), found.dtype,
         found.shape_text());
  const std::span<const std::byte> data = bytes(name);
  if (data.empty()) return;
  if (found.dtype == "F16")
    convert_all<uint16_t>(to.as<float>(), data, widen_half);
  else if (found.dtype == "BF16")
    convert_all<uint16_t>(to.as<float>(), data, widen_bfloat);
  else if (found.dtype == "F64" && to.dtype() == DType::f32)
    convert_all<double>(to.as<float>(), data, [](double x) { return static_cast<float>(x); });
  else
    std::memcpy(to.data(), data.data(), data.size());
}

FileSummary write_safetensors(const std::string& path, const NamedTensors& tensors, const TextMap& metadata) {
  std::string header = "{";
  if (!metadata.empty())
    header += fmt::format("{}:{}", nlohmann::json(metadata_key).dump(), nlohmann::json(metadata).dump());
  std::map<std::string, bool> seen;
  uint64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    KATA_CHECK(name != metadata_key && seen.emplace(name, true).second, "{} cannot name a tensor here", name);
    KATA_CHECK(tensor.contiguous(), "{} is strided", name);
    const uint64_t begin = end;
    end += tensor.bytes();
    std::string shape = tensor.shape().str();
    std::erase(shape, ' ');
    header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}}",
                          header.size() > 1 ? "," : "", nlohmann::json(name).dump(),
                          file_dtype(tensor.dtype()), shape, begin, end);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  KATA_CHECK(length <= header_limit, "a header of {} bytes", length);
  return write_file_atomic(
      path,
      [&](FileWriter& writer) {
        writer.write(&length, sizeof length);
        writer.write(header);
        for (const auto& [name, tensor] : tensors) writer.write(tensor.data(), tensor.bytes());
      },
      8 + length + end);
}

}  // namespace kata
