#include "data/hf_metaspace.h"

#include "data/utf8.h"

namespace kata {

Metaspace read_metaspace(const JsonView& value) {
  value.only({"type", "replacement", "str_rep", "prepend_scheme", "add_prefix_space", "split"});
  Metaspace space;
  const JsonView replacement = value.at("replacement");
  space.replacement = replacement.string();
  if (space.replacement.empty() || code_point_at(space.replacement, 0).bytes != space.replacement.size())
    replacement.refuse("expected one character");
  if (const auto same = value.find("str_rep"); same && same->string() != space.replacement)
    same->refuse("differs from replacement");
  const auto scheme = value.find("prepend_scheme"), prefix = value.find("add_prefix_space");
  if (prefix) space.prepend = prefix->boolean() ? Metaspace::always : Metaspace::never;
  if (scheme) {
    space.prepend = static_cast<Metaspace::Prepend>(scheme->choice({"first", "never", "always"}));
    if (prefix && !prefix->boolean() && space.prepend != Metaspace::never)
      prefix->refuse("contradicts prepend_scheme");
  }
  space.split = value.boolean("split", true);
  return space;
}

}  // namespace kata
