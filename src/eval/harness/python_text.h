// Text as Python's str sees it: the published numbers of language tasks are defined by its strip, split,
// lower and repr (EVAL 0.4). All text is valid UTF-8.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace kata::harness {

int64_t code_points(std::string_view text);

// Python's white space, which is also its regular expressions' \s.
bool is_space(char32_t c);
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);
std::string_view strip(std::string_view text);
std::string_view without_last(std::string_view text);  // character
// Fields of a split on runs of white space, the empty ones at the edges included.
int64_t space_fields(std::string_view text);

// Every occurrence, from the left, not overlapping.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

// What repr() prints: the shortest digits that give the number back; nan, inf.
std::string python_float(double value);

// ---- through ICU ----

// Whether this build knows the cases of letters beyond ASCII. The calls below need it; ExitCode::device where
// it is missing and the text is not ASCII.
bool has_case_tables();
// "TASK needs ICU ...": for what should end before the work begins.
void require_case_tables(std::string_view what);

std::string capitalize(std::string_view text);  // first character in title case, all others in lower case
std::string lower(std::string_view text);
std::string lower_first(std::string_view text);  // first character in lower case
std::string upper_first(std::string_view text);
// Whether `label` occurs in `text` whatever the case of either, as a regular expression that ignores it finds
// it: character by character. An empty label occurs everywhere.
bool contains_ignoring_case(std::string_view text, std::string_view label);
// Bytes [begin, end) of the first such occurrence; {npos, npos} where there is none.
std::pair<size_t, size_t> find_ignoring_case(std::string_view text, std::string_view label);

}  // namespace kata::harness
