// The decoder of a tokenizer.json: pieces become text.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/json_view.h"

namespace kata {

// ByteLevel, Metaspace, ByteFallback, Fuse, Strip, Replace and Sequence. Bytes that make no character stay as
// they are: they may be a part of one.
class HfDecoder {
 public:
  explicit HfDecoder(const JsonView& value);  // null (pieces with blanks between) or an object

  // `inside`: the pieces stand inside a text, so that nothing happens that is about its two ends.
  std::string decode(std::vector<std::string> pieces, bool inside = false) const;

 private:
  // Changes the list of pieces.
  using Step = std::function<void(std::vector<std::string>&, bool inside)>;

  void add(const JsonView& value);
  void add_metaspace(const JsonView& value);
  void add_strip(const JsonView& value);
  void add_replace(const JsonView& value);

  std::vector<Step> steps_;
  bool joined_ = false;  // a step so far makes one piece of all
  bool given_ = false;
};

}  // namespace kata
