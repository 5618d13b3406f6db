#include "config/yaml_reader.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include "config/config_text.h"

namespace kata {
namespace {

constexpr size_t depth_limit = 32;    // of nested maps and lists
constexpr size_t node_limit = 10000;  // values of one file, aliases counted as often as they are used

using Source = std::shared_ptr<const std::string>;

[[noreturn]] void fail_at(const Origin& origin, const std::string& what) {
  fail(ExitCode::usage, "{}: {}", origin.text(), what);
}

size_t count_nodes(const YamlNode& node) {
  size_t count = 1;
  for (const YamlNode& item : node.items) count += count_nodes(item);
  for (const YamlEntry& entry : node.entries) count += count_nodes(entry.value);
  return count;
}

// Builds the tree from the parser's events. A container stays on the stack while its contents arrive.
class TreeBuilder : public YAML::EventHandler {
 public:
  // placed: values know line and column; otherwise only the source as a whole.
  TreeBuilder(Source source, bool placed) : source_(std::move(source)), placed_(placed) {
    root_.origin = {source_, 0, 0};
  }

  YamlNode take() { return std::move(root_); }
  Origin origin(const YAML::Mark& mark) const {
    return placed_ && !mark.is_null() ? Origin{source_, mark.line + 1, mark.column + 1}
                                      : Origin{source_, 0, 0};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) fail_at(origin(mark), "a second document; a config is one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    node.origin = origin(mark);
    add(std::move(node), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = start(YamlNode::Kind::scalar, mark, tag);
    node.quoted = tag == "!";
    const bool is_null = !node.quoted && (value.empty() || value == "~" || value == "null");
    if (is_null)
      node.kind = YamlNode::Kind::null;
    else
      node.scalar = value;
    if (expects_key() && !is_null) return take_key(node, anchor);
    add(std::move(node), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto known = anchors_.find(anchor);
    if (known == anchors_.end()) fail_at(origin(mark), "an alias inside the value that it stands for");
    count(count_nodes(known->second), origin(mark));
    YamlNode copy = known->second;
    copy.origin = origin(mark);
    add(std::move(copy), 0);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(start(YamlNode::Kind::list, mark, tag), anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(start(YamlNode::Kind::map, mark, tag), anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor = 0;
    bool has_key = false;  // of a map: the key is read, its value is next
    std::string key;
    Origin key_origin;
  };

  bool expects_key() const {
    return !open_.empty() && open_.back().node.kind == YamlNode::Kind::map && !open_.back().has_key;
  }
  YamlNode start(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag) {
    const Origin at = origin(mark);
    if (!tag.empty() && tag != "?" && tag != "!")
      fail_at(at, "tags are not supported; remove '" + shortened(tag) + "'");
    YamlNode node;
    node.kind = kind;
    node.origin = at;
    return node;
  }
  void count(size_t nodes, const Origin& at) {
    nodes_ += nodes;
    if (nodes_ > node_limit) fail_at(at, fmt::format("more than {} values", node_limit));
  }
  void take_key(const YamlNode& node, YAML::anchor_t anchor) {
    Open& top = open_.back();
    if (anchor != 0) fail_at(node.origin, "an anchor on a key; anchor the value");
    if (node.scalar == "<<")
      fail_at(node.origin, "merge keys (<<) are not supported; write the keys out, or use extends");
    if (const YamlEntry* first = top.node.find(node.scalar))
      fail_at(node.origin, fmt::format("duplicate key '{}', first given at line {}", shortened(node.scalar),
                                       first->origin.line));
    top.has_key = true;
    top.key = node.scalar;
    top.key_origin = node.origin;
  }
  void open(YamlNode node, YAML::anchor_t anchor) {
    if (expects_key()) fail_at(node.origin, "a list or a map in the place of a key; is a bracket left open?");
    if (open_.size() >= depth_limit)
      fail_at(node.origin, fmt::format("nested more than {} levels deep", depth_limit));
    open_.push_back({std::move(node), anchor, false, {}, {}});
  }
  void close() {
    Open done = std::move(open_.back());
    open_.pop_back();
    add(std::move(done.node), done.anchor);
  }
  // A finished value goes to the container around it.
  void add(YamlNode node, YAML::anchor_t anchor) {
    if (expects_key()) fail_at(node.origin, "a key must be one word");  // nothing, or an alias
    count(1, node.origin);
    if (anchor != 0) anchors_[anchor] = node;
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& top = open_.back();
    if (top.node.kind == YamlNode::Kind::list) {
      top.node.items.push_back(std::move(node));
    } else {
      if (node.kind == YamlNode::Kind::null) node.origin = top.key_origin;  // the parser is past it already
      top.node.entries.push_back({top.key, top.key_origin, std::move(node)});
      top.has_key = false;
    }
  }

  Source source_;
  bool placed_;
  YamlNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, YamlNode> anchors_;
  size_t nodes_ = 0;
  int documents_ = 0;
};

YamlNode parse(const std::string& text, const Source& source, bool placed) {
  TreeBuilder builder(source, placed);
  if (const auto fault = find_text_fault(text))
    fail_at(placed ? Origin{source, fault->line, fault->column} : Origin{source, 0, 0}, fault->what);
  try {
    std::istringstream in(text);
    YAML::Parser parser(in);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    fail_at(builder.origin(error.mark), "not valid YAML: " + shortened(error.msg));
  }
  return builder.take();
}

std::string canonical(const std::string& path) {
  std::error_code error;
  const auto real = std::filesystem::weakly_canonical(path, error);
  return error ? path : real.string();
}

// `chain`: the files from the one that the user named down to this one, for the message of a cycle.
YamlNode read_extended(const std::string& path, std::vector<std::string>& chain) {
  constexpr size_t chain_limit = 16;
  YamlNode own = read_yaml_file(path);
  chain.push_back(path);
  const YamlEntry* extends = own.find("extends");
  if (!extends) return own;
  const Origin at = extends->value.origin;
  if (extends->value.kind != YamlNode::Kind::scalar || extends->value.scalar.empty())
    fail_at(at, "extends: expected the path of a YAML file, found " + extends->value.description());
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const std::string base_path = (folder / extends->value.scalar).string();
  for (const std::string& file : chain)
    if (canonical(file) == canonical(base_path)) {
      std::string cycle;
      for (const std::string& link : chain) cycle += link + " -> ";
      fail_at(at, "extends: a cycle: " + printable(cycle + base_path));
    }
  if (chain.size() >= chain_limit)
    fail_at(at, fmt::format("extends: more than {} files in a chain", chain_limit));
  std::error_code error;
  if (!std::filesystem::exists(base_path, error))
    fail_at(at, fmt::format("extends: no file {}; the path is relative to the folder of this file",
                            printable(base_path)));
  YamlNode base = read_extended(base_path, chain);
  own.erase("extends");
  merge_yaml(base, own);
  return base;
}

// One step of an override's path: the value under `name`, made where a map lacks it.
YamlNode& descend(YamlNode& node, const std::string& name, const std::string& so_far, const Origin& origin) {
  const bool index =
      !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
  if (node.kind == YamlNode::Kind::list) {
    const size_t i = index ? std::stoul(name) : node.items.size();
    if (i >= node.items.size())
      fail_at(origin, fmt::format("{} is a list of {}; expected an index from 0 below {}, found '{}'", so_far,
                                  node.items.size(), node.items.size(), shortened(name)));
    return node.items[i];
  }
  if (node.kind == YamlNode::Kind::scalar)
    fail_at(origin,
            fmt::format("{} is {}, not a map; set the whole of {}", so_far, node.description(), so_far));
  if (node.kind == YamlNode::Kind::null) {
    if (index)
      fail_at(origin,
              fmt::format("{} is not given in the config, so it has no item {}; set the whole list, as "
                          "in {}=[...]",
                          so_far, name, so_far));
    node.kind = YamlNode::Kind::map;
    node.origin = origin;
  }
  if (YamlEntry* entry = node.find(name)) return entry->value;
  YamlNode missing;
  missing.origin = origin;
  node.entries.push_back({name, origin, std::move(missing)});
  return node.entries.back().value;
}

}  // namespace

std::string Origin::text() const {
  KATA_CHECK(source != nullptr, "a value without a source");
  return line == 0 ? *source : fmt::format("{}:{}:{}", *source, line, column);
}

const YamlEntry* YamlNode::find(const std::string& key) const {
  const auto at =
      std::find_if(entries.begin(), entries.end(), [&](const YamlEntry& entry) { return entry.key == key; });
  return at == entries.end() ? nullptr : &*at;
}

YamlEntry* YamlNode::find(const std::string& key) {
  return const_cast<YamlEntry*>(std::as_const(*this).find(key));
}

void YamlNode::erase(const std::string& key) {
  std::erase_if(entries, [&](const YamlEntry& entry) { return entry.key == key; });
}

std::string YamlNode::description() const {
  switch (kind) {
    case Kind::null:
      return "nothing";
    case Kind::list:
      return fmt::format("a list of {}", items.size());
    case Kind::map:
      return "a map";
    case Kind::scalar:
      break;
  }
  return fmt::format("{}'{}'", quoted ? "the text " : "", shortened(scalar));
}

YamlNode read_yaml_file(const std::string& path) {
  YamlNode root = parse(read_config_text(path), std::make_shared<const std::string>(printable(path)), true);
  if (root.kind == YamlNode::Kind::null)
    fail(ExitCode::usage, "{}: the config is empty; expected a map of keys such as model: and data:", path);
  if (root.kind != YamlNode::Kind::map)
    fail_at(root.origin,
            fmt::format("expected a map of keys such as model: and data:, found {}", root.description()));
  return root;
}

YamlNode read_yaml_chain(const std::string& path) {
  std::vector<std::string> chain;
  return read_extended(path, chain);
}

void merge_yaml(YamlNode& base, const YamlNode& over) {
  if (base.kind != YamlNode::Kind::map || over.kind != YamlNode::Kind::map) {
    base = over;
    return;
  }
  for (const YamlEntry& entry : over.entries) {
    if (YamlEntry* known = base.find(entry.key)) {
      known->origin = entry.origin;
      merge_yaml(known->value, entry.value);
    } else {
      base.entries.push_back(entry);
    }
  }
}

void apply_override(YamlNode& root, const std::string& assignment) {
  const auto source = std::make_shared<const std::string>("--set " + shortened(assignment));
  const Origin origin{source, 0, 0};
  const size_t equals = assignment.find('=');
  const std::string path = assignment.substr(0, equals);
  if (equals == std::string::npos || path.empty())
    fail_at(origin, "expected key=value, such as --set train.steps=100");
  YamlNode value = parse(assignment.substr(equals + 1), source, false);
  if (value.kind == YamlNode::Kind::null) fail_at(origin, "no value after =");
  YamlNode* node = &root;
  std::string so_far;
  for (size_t begin = 0; begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string name = path.substr(begin, end - begin);
    if (name.empty()) fail_at(origin, "an empty name in the key; expected names joined by single dots");
    node = &descend(*node, name, so_far, origin);
    so_far = shortened(path.substr(0, end));
    begin = end + 1;
  }
  *node = std::move(value);
}

}  // namespace kata
