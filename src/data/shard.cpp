#include "data/shard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/parallel.h"

namespace kata {

static_assert(std::endian::native == std::endian::little,
              "shards are little-endian and are mapped as they are");

namespace {

constexpr size_t header_words = 256;
using HeaderWords = std::array<uint32_t, header_words>;
static_assert(sizeof(HeaderWords) == shard_header_bytes);

struct Flavour {
  uint32_t magic, version;
  int token_bytes;
};
constexpr std::array<Flavour, 2> flavours = {{{20240520, 1, 2}, {20240801, 7, 4}}};

constexpr int64_t scan_block = int64_t{1} << 20;  // tokens

Flavour flavour_of(const std::string& path, const HeaderWords& header) {
  for (const Flavour& f : flavours) {
    if (header[0] == __builtin_bswap32(f.magic))
      fail(ExitCode::data,
           "{}: the header is big-endian, expected a little-endian token shard; swap the bytes of the "
           "header and of every token, or make it again with katadata tokenize",
           path);
    if (header[0] != f.magic) continue;
    if (header[1] != f.version)
      fail(ExitCode::data,
           "{}: version {} with magic {}, expected version {}; make the shard again with katadata "
           "tokenize",
           path, header[1], f.magic, f.version);
    return f;
  }
  fail(ExitCode::data,
       "{}: magic {}, expected {} (uint16 tokens) or {} (uint32 tokens); it is no token shard, make "
       "one with katadata tokenize",
       path, header[0], flavours[0].magic, flavours[1].magic);
}

}  // namespace

Shard::Header Shard::read_header(const InputFile& file) {
  const std::string& path = file.path();
  if (file.size() < sizeof(HeaderWords))
    fail(ExitCode::data,
         "{}: {} bytes, expected a token shard, whose header alone has {}; make one with katadata "
         "tokenize",
         path, file.size(), sizeof(HeaderWords));
  HeaderWords header;
  file.read_at(0, header.data(), sizeof header);
  const Flavour flavour = flavour_of(path, header);
  const auto count = static_cast<int32_t>(header[2]);
  if (count <= 0)
    fail(ExitCode::data, "{}: {} tokens by its header, expected 1 to {}; make the shard again", path, count,
         largest_shard);
  for (size_t i = 3; i < header_words; ++i)
    if (header[i] != 0)
      fail(ExitCode::data,
           "{}: byte {} of the header belongs to a word of value {}, expected 0; the file is damaged, "
           "make or copy it again",
           path, 4 * i, header[i]);
  const uint64_t expected =
      sizeof header + static_cast<uint64_t>(count) * static_cast<uint64_t>(flavour.token_bytes);
  if (file.size() != expected)
    fail(ExitCode::data,
         "{}: {} bytes, expected {} for the {} uint{} tokens of its header; it is {}, make or copy it "
         "again",
         path, file.size(), expected, count, 8 * flavour.token_bytes,
         file.size() < expected ? "truncated" : "too long");
  return {count, flavour.token_bytes};
}

Shard::Shard(const std::string& path) : Shard(InputFile(path)) {}
Shard::Shard(const InputFile& file) : Shard(file, read_header(file)) {}
Shard::Shard(const InputFile& file, const Header& header)
    : path_(file.path()), tokens_(header.tokens), token_bytes_(header.token_bytes), map_(file) {}

template <class Body>
auto Shard::with_tokens(Body&& body) const {
  const std::byte* first = map_.data() + shard_header_bytes;
  if (token_bytes_ == 2) return body(reinterpret_cast<const uint16_t*>(first));
  return body(reinterpret_cast<const uint32_t*>(first));
}

void Shard::read(int64_t begin, int64_t count, int32_t* out) const {
  KATA_CHECK(begin >= 0 && count >= 0 && begin <= tokens_ - count, "{} tokens at {} of {}", count, begin,
             tokens_);
  with_tokens([&](const auto* tokens) {
    int32_t any = 0;
    for (int64_t i = 0; i < count; ++i) any |= out[i] = static_cast<int32_t>(tokens[begin + i]);
    if (any < 0) check_ids(int64_t{1} << 31);
  });
}

Shard::Ids Shard::ids() const {
  return with_tokens([&](const auto* tokens) {
    using Token = std::remove_cvref_t<decltype(*tokens)>;
    const auto blocks = static_cast<size_t>(ceil_div(tokens_, scan_block));
    std::vector<Ids> found(blocks);
    parallel_blocks(tokens_, scan_block, [&](int64_t begin, int64_t end) {
      Token smallest = tokens[begin], largest = tokens[begin];
      for (int64_t i = begin; i < end; ++i) {
        smallest = std::min(smallest, tokens[i]);
        largest = std::max(largest, tokens[i]);
      }
      found[static_cast<size_t>(begin / scan_block)] = {smallest, largest};
    });
    Ids all = found[0];
    for (const Ids& ids : found)
      all = {std::min(all.smallest, ids.smallest), std::max(all.largest, ids.largest)};
    return all;
  });
}

void Shard::check_ids(int64_t vocab) const {
  if (token_bytes_ == 2 && vocab > UINT16_MAX) return;
  if (ids().largest < vocab) return;
  with_tokens([&](const auto* tokens) {
    const auto* bad = std::find_if(tokens, tokens + tokens_, [&](auto id) { return int64_t{id} >= vocab; });
    fail(ExitCode::data,
         "{}: token {} has id {}, expected ids below the vocabulary of {}; raise the vocabulary or use "
         "shards made with this tokenizer",
         path_, bad - tokens, *bad, vocab);
  });
}

bool is_shard_start(std::string_view bytes) {
  uint32_t magic = 0;
  if (bytes.size() < sizeof magic) return false;
  std::memcpy(&magic, bytes.data(), sizeof magic);
  return std::any_of(flavours.begin(), flavours.end(), [&](const Flavour& f) { return f.magic == magic; });
}

void write_shard(const std::string& path, std::span<const int32_t> tokens, int64_t vocab) {
  const auto count = static_cast<int64_t>(tokens.size());
  KATA_CHECK(count > 0 && count <= largest_shard, "{} tokens", count);
  const Flavour& flavour = flavours[vocab <= 65536 ? 0 : 1];
  const auto width = static_cast<size_t>(flavour.token_bytes);
  const HeaderWords header = {flavour.magic, flavour.version, static_cast<uint32_t>(count)};
  write_file_atomic(
      path,
      [&](FileWriter& file) {
        file.write(header.data(), sizeof header);
        for (const int32_t token : tokens) {
          KATA_CHECK(token >= 0 && token < vocab, "token {} with vocabulary {}", token, vocab);
          file.write(&token, width);  // the low bytes come first
        }
      },
      sizeof header + tokens.size() * width);
}

}  // namespace kata
