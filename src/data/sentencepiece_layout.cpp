#include "data/sentencepiece_layout.h"

#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace kata {

void refuse_sentencepiece(const std::string& path, const std::string& reason) {
  fail(ExitCode::data, "{}: {}; expected a sentencepiece model, as katadata train-tokenizer writes", path,
       reason);
}

namespace {

enum WireType : uint64_t { varint = 0, eight_bytes = 1, sized = 2, four_bytes = 5 };

struct Field {
  uint64_t number = 0, type = 0;
  std::string_view value;  // of a sized one
};

class FieldReader {
 public:
  FieldReader(std::string_view bytes, const std::string& path) : rest_(bytes), path_(path) {}

  bool done() const { return rest_.empty(); }

  Field next() {
    const uint64_t key = number();
    Field field{key >> 3, key & 7, {}};
    if (field.number == 0) refuse_sentencepiece(path_, "not a sentencepiece model");
    switch (field.type) {
      case varint:
        number();
        break;
      case eight_bytes:
        take(8);
        break;
      case sized:
        field.value = take(number());
        break;
      case four_bytes:
        take(4);
        break;
      default:
        refuse_sentencepiece(path_, "not a sentencepiece model");
    }
    return field;
  }

  [[noreturn]] void cut() const {
    refuse_sentencepiece(path_, "not a sentencepiece model, or one that was cut short");
  }

 private:
  std::string_view take(uint64_t bytes) {
    if (bytes > rest_.size()) cut();
    const std::string_view taken = rest_.substr(0, static_cast<size_t>(bytes));
    rest_.remove_prefix(taken.size());
    return taken;
  }

  uint64_t number() {  // seven bits a byte, the lowest first
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= uint64_t{byte & 0x7Fu} << shift;
      if (byte < 0x80) return value;
    }
    refuse_sentencepiece(path_, "not a sentencepiece model");
  }

  std::string_view rest_;
  const std::string& path_;
};

// A normalisation table: the bytes of a trie (uint32), the trie, and texts that end in a zero byte each. The
// trie is a double array. From unit i and the next byte c of the text the library goes to
// i ^ offset(unit i) ^ c, and stays where that unit does not say c; a unit with a leaf has at
// i ^ offset(unit i) the place of a text. Neither is checked there, so every unit is checked here, also those
// that no text leads to.
bool is_safe_table(std::string_view table) {
  uint32_t trie_bytes = 0;
  if (table.size() < sizeof trie_bytes) return false;
  std::memcpy(&trie_bytes, table.data(), sizeof trie_bytes);
  table.remove_prefix(sizeof trie_bytes);
  if (trie_bytes >= table.size() || trie_bytes % 4 != 0 || table.back() != 0) return false;
  const uint32_t units = trie_bytes / 4;
  const uint64_t text_bytes = table.size() - trie_bytes;
  const auto unit_at = [&](uint32_t i) {
    uint32_t unit;
    std::memcpy(&unit, table.data() + size_t{4} * i, sizeof unit);
    return unit;
  };
  for (uint32_t i = 0; i < units; ++i) {
    const uint32_t unit = unit_at(i);
    if (unit >> 31 != 0) continue;  // the place of a text: nothing goes on from here
    const uint32_t below = i ^ (unit >> 10) << ((unit & 0x200) >> 6);
    if ((below | 0xFF) >= units) return false;
    const bool has_leaf = (unit >> 8 & 1) != 0;
    if (has_leaf && (unit_at(below) & 0x7FFFFFFF) >= text_bytes) return false;
  }
  return units > 0;
}

void check_normaliser(std::string_view settings, const std::string& path) {
  constexpr uint64_t table = 2;
  FieldReader fields(settings, path);
  while (!fields.done()) {
    const Field field = fields.next();
    if (field.number == table && field.type == sized && !field.value.empty() && !is_safe_table(field.value))
      refuse_sentencepiece(path, "its normalisation table is damaged");
  }
}

}  // namespace

void check_sentencepiece_layout(std::string_view bytes, const std::string& path) {
  enum : uint64_t { pieces = 1, trainer = 2, normaliser = 3, denormaliser = 5 };
  if (bytes.empty()) refuse_sentencepiece(path, "an empty file");
  bool found[4] = {};
  FieldReader fields(bytes, path);
  while (!fields.done()) {
    const Field field = fields.next();
    if (field.type != sized) refuse_sentencepiece(path, "not a sentencepiece model");
    if (field.number <= normaliser) found[field.number] = true;
    if (field.number == normaliser || field.number == denormaliser) check_normaliser(field.value, path);
  }
  if (!found[pieces]) refuse_sentencepiece(path, "not a sentencepiece model");
  if (!found[trainer] || !found[normaliser]) fields.cut();
}

}  // namespace kata
