#include "base/crc32.h"

#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace kata {
namespace {

// The definition, bit by bit.
uint32_t by_bits(const std::string& text) {
  uint32_t state = 0xFFFFFFFFu;
  for (const char c : text) {
    state ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ ((state & 1) != 0 ? 0xEDB88320u : 0u);
  }
  return ~state;
}

std::string sample(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * i * 31 + 7 * i + 3);
  return text;
}

TEST(Crc32, KnownAnswers) {
  EXPECT_EQ(crc32(""), 0u);
  EXPECT_EQ(crc32("a"), 0xE8B7BE43u);
  EXPECT_EQ(crc32("123456789"), 0xCBF43926u);
  EXPECT_EQ(crc32("The quick brown fox jumps over the lazy dog"), 0x414FA339u);
  EXPECT_EQ(crc32(std::string(32, '\0')), 0x190A55ADu);
  EXPECT_EQ(crc32(std::string(32, '\xFF')), 0xFF6CAB0Bu);
  EXPECT_EQ(crc32_text(0x00AB12u), "0000ab12");
}

TEST(Crc32, EveryLengthAndAlignmentEqualsTheDefinition) {
  const std::string text = sample(80);
  for (size_t begin = 0; begin < 9; ++begin)
    for (size_t length = 0; length + begin <= text.size(); ++length)
      ASSERT_EQ(crc32(text.data() + begin, length), by_bits(text.substr(begin, length)))
          << begin << " " << length;
}

TEST(Crc32, PiecesGiveTheWhole) {
  const std::string text = sample(1000);
  for (size_t piece : {1, 3, 8, 13, 999}) {
    Crc32 crc;
    for (size_t i = 0; i < text.size(); i += piece)
      crc.update(text.data() + i, std::min(piece, text.size() - i));
    EXPECT_EQ(crc.value(), by_bits(text)) << piece;
  }
}

TEST(Crc32, EverySingleBitFlipIsSeen) {
  std::string text = sample(64);
  const uint32_t before = crc32(text);
  for (size_t bit = 0; bit < 8 * text.size(); ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(crc32(text), before) << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  }
}

}  // namespace
}  // namespace kata
