// What is known of one trained model beside its checkpoint: the scores read so far, or why there is no model.
//
// Kept in cell.json with a checksum. A file that does not hold, or that speaks of another training run,
// counts as absent, with a warning.
#pragma once

#include <string>
#include <vector>

#include "eval/grid.h"

namespace kata {

struct CellRecord {
  struct Entry {
    ExampleSpec spec;
    CellScore score;
  };
  std::string key;    // everything that determines the trained weights
  std::string model;  // name of its row when the file was written
  double learning_rate = 0;
  std::string trouble;        // why the training ended without a usable model; empty = it did not
  std::string commit;         // of the program that found that
  std::vector<Entry> scores;  // at most one for a spec

  const CellScore* find(const ExampleSpec& spec) const;
};

// folder/cell.json; a record with this key and nothing else in it where there is none that can be trusted.
CellRecord load_record(const std::string& folder, const std::string& key);
void save_record(const std::string& folder, const CellRecord& record);

}  // namespace kata
