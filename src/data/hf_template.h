// The post_processor of a tokenizer.json: the special tokens around a text.
#pragma once

#include <cstdint>
#include <vector>

#include "data/json_view.h"

namespace kata {

// TemplateProcessing (its template for a single text), ByteLevel (which changes no id) and Sequence.
class HfTemplate {
 public:
  // null or an object; ids are below `vocab`.
  HfTemplate(const JsonView& value, int64_t vocab);

  std::vector<int32_t> apply(std::vector<int32_t> ids, bool add_special_tokens) const;
  // The token that it puts before a text, -1 where there is none.
  int32_t first_token() const;

 private:
  struct Item {
    bool text = false;
    std::vector<int32_t> ids;  // otherwise
  };
  void add(const JsonView& value, int64_t vocab);
  void add_template(const JsonView& value, int64_t vocab);

  std::vector<std::vector<Item>> templates_;  // one after the other
};

}  // namespace kata
