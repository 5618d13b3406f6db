#include "data/npz.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace kata {

namespace {

// ---- zip: the records that a stored member has (APPNOTE 4.3.7, 4.3.12, 4.3.16) ----

constexpr uint32_t local_signature = 0x04034b50, central_signature = 0x02014b50, end_signature = 0x06054b50;
constexpr size_t local_bytes = 30, central_bytes = 46, end_bytes = 22;
constexpr uint64_t zip_limit = 0xffffffff;
constexpr uint16_t zip_version = 20;
constexpr uint16_t first_day = 1 << 5 | 1;  // 1980-01-01

template <class T>
void append(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

struct Member {
  std::string name;    // "inputs.npy"
  std::string header;  // of the npy format
  uint64_t bytes = 0;  // header and elements
  uint64_t offset = 0;
  uint32_t crc = 0;
};

// The fields that both records share, from the version needed to the extra field's length.
void append_common(std::string& to, const Member& m) {
  append(to, zip_version);
  append(to, uint16_t{0});  // flags
  append(to, uint16_t{0});  // stored
  append(to, uint16_t{0});  // time
  append(to, first_day);
  append(to, m.crc);
  append(to, static_cast<uint32_t>(m.bytes));
  append(to, static_cast<uint32_t>(m.bytes));
  append(to, static_cast<uint16_t>(m.name.size()));
  append(to, uint16_t{0});  // extra
}

std::string local_record(const Member& m) {
  std::string record;
  append(record, local_signature);
  append_common(record, m);
  return record + m.name;
}

std::string central_record(const Member& m) {
  std::string record;
  append(record, central_signature);
  append(record, zip_version);
  append_common(record, m);
  append(record, uint16_t{0});  // comment
  append(record, uint16_t{0});  // disk
  append(record, uint16_t{0});  // internal attributes
  append(record, uint32_t{0});  // external attributes
  append(record, static_cast<uint32_t>(m.offset));
  return record + m.name;
}

std::string end_record(size_t members, uint64_t central_offset, uint64_t central_size) {
  std::string record;
  append(record, end_signature);
  append(record, uint32_t{0});  // disks
  append(record, static_cast<uint16_t>(members));
  append(record, static_cast<uint16_t>(members));
  append(record, static_cast<uint32_t>(central_size));
  append(record, static_cast<uint32_t>(central_offset));
  append(record, uint16_t{0});  // comment
  return record;
}

// ---- npy 1.0: magic, version, length of the header, a Python dictionary padded to align the data ----

constexpr std::string_view npy_magic("\x93NUMPY", 6);
constexpr size_t npy_prefix = 10, npy_alignment = 64;

std::string npy_header(const NpzArray& array) {
  std::string shape;
  for (const int64_t n : array.shape) shape += fmt::format("{}, ", n);
  if (array.shape.size() > 1) shape.resize(shape.size() - 2);
  if (array.shape.size() == 1) shape.pop_back();  // "(5,)"
  std::string text =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", array.dtype, shape);
  const size_t unpadded = npy_prefix + text.size() + 1;
  text.append((npy_alignment - unpadded % npy_alignment) % npy_alignment, ' ');
  text += '\n';
  std::string header(npy_magic);
  append(header, uint16_t{1});  // version 1.0
  append(header, static_cast<uint16_t>(text.size()));
  return header + text;
}

// Elements times their size, zip_limit where it is that or more.
uint64_t element_bytes(const std::vector<int64_t>& shape, int64_t item) {
  unsigned __int128 bytes = static_cast<uint64_t>(item);
  for (const int64_t n : shape)
    bytes = std::min<unsigned __int128>(bytes * static_cast<uint64_t>(n), zip_limit);
  // A zero after the limit was met still means that there is nothing.
  return std::count(shape.begin(), shape.end(), 0) > 0 ? 0 : static_cast<uint64_t>(bytes);
}

// Members without offsets and checksums.
std::vector<Member> plan(const std::string& path, const std::vector<NpzArray>& arrays) {
  std::vector<Member> members;
  uint64_t total = end_bytes;
  for (const NpzArray& array : arrays) {
    const int64_t item = npy_item_bytes(array.dtype);
    KATA_CHECK(item > 0, "dtype {}", array.dtype);
    Member m{array.name + ".npy", npy_header(array)};
    m.bytes = m.header.size() + element_bytes(array.shape, item);
    total += local_bytes + central_bytes + 2 * m.name.size() + m.bytes;
    members.push_back(std::move(m));
  }
  if (total >= zip_limit)
    fail(ExitCode::usage,
         "{}: the arrays need 4 GiB or more, which a plain .npz cannot hold; ask for fewer examples and "
         "use several seeds",
         path);
  return members;
}

}  // namespace

int64_t npy_item_bytes(const std::string& dtype) {
  if (dtype.size() < 3 || (dtype[0] != '<' && dtype[0] != '|')) return 0;
  int64_t count = 0;
  const auto [end, error] = std::from_chars(dtype.data() + 2, dtype.data() + dtype.size(), count);
  if (error != std::errc{} || end != dtype.data() + dtype.size() || count < 1 || count > 1 << 20) return 0;
  switch (dtype[1]) {
    case 'i':
    case 'u':
    case 'f':
      return count <= 8 ? count : 0;
    case 'U':
      return 4 * count;
    default:
      return 0;
  }
}

void check_npz_size(const std::string& path, const std::vector<NpzArray>& arrays) {
  plan(path, arrays);
}

void write_npz(const std::string& path, const std::vector<NpzArray>& arrays) {
  std::vector<Member> members = plan(path, arrays);
  uint64_t offset = 0, central_size = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    Member& m = members[i];
    Crc32 crc;
    crc.update(m.header.data(), m.header.size());
    uint64_t bytes = m.header.size();
    arrays[i].elements([&](const void* data, size_t n) {
      crc.update(data, n);
      bytes += n;
    });
    KATA_CHECK(bytes == m.bytes, "{}: {} bytes, planned {}", m.name, bytes, m.bytes);
    m.crc = crc.value();
    m.offset = offset;
    offset += local_bytes + m.name.size() + m.bytes;
    central_size += central_bytes + m.name.size();
  }
  write_file_atomic(
      path,
      [&](FileWriter& file) {
        for (size_t i = 0; i < members.size(); ++i) {
          file.write(local_record(members[i]));
          file.write(members[i].header);
          arrays[i].elements([&](const void* data, size_t n) { file.write(data, n); });
        }
        for (const Member& m : members) file.write(central_record(m));
        file.write(end_record(members.size(), offset, central_size));
      },
      offset + central_size + end_bytes);
}

// ---- reading ----

namespace {

class Reader {
 public:
  Reader(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

  [[noreturn]] void refuse(const std::string& what) const {
    fail(ExitCode::data, "{}: {}; make the file again", path_, what);
  }
  std::span<const std::byte> part(uint64_t offset, uint64_t size, const char* what) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      refuse(fmt::format("{} reaches beyond the end of the file, it is truncated or damaged", what));
    return bytes_.subspan(offset, size);
  }
  template <class T>
  T number(uint64_t offset, const char* what) const {
    T value;
    std::memcpy(&value, part(offset, sizeof value, what).data(), sizeof value);
    return value;
  }
  std::string text(uint64_t offset, uint64_t size, const char* what) const {
    const auto span = part(offset, size, what);
    return std::string(reinterpret_cast<const char*>(span.data()), span.size());
  }
  uint64_t size() const { return bytes_.size(); }

 private:
  const std::string& path_;
  std::span<const std::byte> bytes_;
};

// What stands between two marks of a npy header, "" if they are not there.
std::string between_marks(const std::string& text, const std::string& before, char after) {
  const size_t found = text.find(before);
  if (found == std::string::npos) return "";
  const size_t begin = found + before.size(), end = text.find(after, begin);
  return end == std::string::npos ? "" : text.substr(begin, end - begin);
}

std::vector<int64_t> parse_shape(const Reader& file, const std::string& name, const std::string& text) {
  std::vector<int64_t> shape;
  const char *at = text.data(), *end = text.data() + text.size();
  while (at != end) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t n = 0;
    const auto [next, error] = std::from_chars(at, end, n);
    if (error != std::errc{} || n < 0) file.refuse(fmt::format("{} has the shape ({})", name, text));
    shape.push_back(n);
    at = next;
  }
  return shape;
}

NpzFile::Entry parse_npy(const Reader& file, const std::string& name, uint64_t offset, uint64_t size) {
  const char* what = "the header of an array";
  if (size < npy_prefix || file.text(offset, npy_magic.size(), what) != npy_magic)
    file.refuse(fmt::format("{} is no .npy array", name));
  const auto version = file.number<uint8_t>(offset + 6, what);
  if (version != 1) file.refuse(fmt::format("{} has .npy version {}, expected 1", name, version));
  const auto length = file.number<uint16_t>(offset + 8, what);
  if (length > size - npy_prefix) file.refuse(fmt::format("the header of {} is longer than the array", name));
  const std::string header = file.text(offset + npy_prefix, length, what);
  NpzFile::Entry entry;
  entry.name = name.substr(0, name.size() - 4);
  entry.dtype = between_marks(header, "'descr': '", '\'');
  entry.shape = parse_shape(file, name, between_marks(header, "'shape': (", ')'));
  if (header.find("'fortran_order': False") == std::string::npos)
    file.refuse(fmt::format("{} is stored column by column, expected rows", name));
  const int64_t item = npy_item_bytes(entry.dtype);
  if (item == 0)
    file.refuse(fmt::format("{} has the element type \"{}\", expected numbers or text", name, entry.dtype));
  const uint64_t data = size - npy_prefix - length, expected = element_bytes(entry.shape, item);
  if (data != expected)
    file.refuse(fmt::format("{} has {} bytes, expected {} for its shape", name, data, expected));
  entry.bytes = file.part(offset + npy_prefix + length, data, "an array");
  return entry;
}

NpzFile::Entry parse_member(const Reader& file, uint64_t central) {
  const char* what = "the record of an array";
  const auto method = file.number<uint16_t>(central + 10, what);
  const auto crc = file.number<uint32_t>(central + 16, what);
  const auto packed = file.number<uint32_t>(central + 20, what),
             size = file.number<uint32_t>(central + 24, what);
  const uint64_t local = file.number<uint32_t>(central + 42, what);
  const std::string name =
      file.text(central + central_bytes, file.number<uint16_t>(central + 28, what), what);
  if (method != 0 || packed != size)
    file.refuse(
        fmt::format("{} is compressed, expected stored arrays (numpy.savez, not savez_compressed)", name));
  if (name.size() < 5 || !name.ends_with(".npy"))
    file.refuse(fmt::format("member \"{}\" is no .npy array", name));
  if (file.number<uint32_t>(local, what) != local_signature)
    file.refuse(fmt::format("{} is not where the archive's table says", name));
  const uint64_t begin =
      local + local_bytes + file.number<uint16_t>(local + 26, what) + file.number<uint16_t>(local + 28, what);
  const auto bytes = file.part(begin, size, "an array");
  if (crc32(bytes.data(), bytes.size()) != crc)
    file.refuse(fmt::format("{} does not match its checksum", name));
  return parse_npy(file, name, begin, size);
}

}  // namespace

NpzFile::NpzFile(const std::string& path) : map_(path, MappedFile::Access::sequential) {
  const Reader file(path, map_.bytes());
  if (file.size() < end_bytes || file.number<uint32_t>(file.size() - end_bytes, "") != end_signature)
    file.refuse("no zip table at the end, expected a .npz");
  const uint64_t end = file.size() - end_bytes;
  const auto members = file.number<uint16_t>(end + 10, "");
  uint64_t central = file.number<uint32_t>(end + 16, "");
  for (uint16_t i = 0; i < members; ++i) {
    const char* what = "the archive's table";
    if (file.number<uint32_t>(central, what) != central_signature)
      file.refuse("the archive's table is damaged");
    entries_.push_back(parse_member(file, central));
    central += central_bytes + file.number<uint16_t>(central + 28, what) +
               file.number<uint16_t>(central + 30, what) + file.number<uint16_t>(central + 32, what);
  }
  if (central != end) file.refuse("the archive's table has the wrong length");
}

}  // namespace kata
