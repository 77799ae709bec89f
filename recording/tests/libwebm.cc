// Reads a WebM file with mkvparser, the reader of libwebm. libwebm.rs declares the same types.

#include <cstdint>
#include <cstring>
#include <memory>

#include "mkvparser/mkvparser.h"

namespace {

struct Block {
  std::int32_t track;
  std::int32_t milliseconds;
};

struct File {
  // A status of mkvparser, which ended the reading.
  std::int64_t status;
  std::int64_t cluster_count;
  std::int64_t block_count;
  // In ns; -1 = unknown.
  std::int64_t duration;
  std::int64_t cue_count;
  // Cues that lead to a key frame of their time.
  std::int64_t valid_cue_count;
};

class MemoryReader : public mkvparser::IMkvReader {
 public:
  MemoryReader(const std::uint8_t* data, long long size, bool grows)
      : data_(data), size_(size), grows_(grows) {}
  virtual ~MemoryReader() {}

  int Read(long long position, long length, unsigned char* out) override {
    if (position < 0 || length < 0 || position > size_ - length) return -1;
    std::memcpy(out, data_ + position, static_cast<std::size_t>(length));
    return 0;
  }

  int Length(long long* total, long long* available) override {
    if (total) *total = grows_ ? -1 : size_;
    if (available) *available = size_;
    return 0;
  }

  bool Contains(const mkvparser::Block::Frame& frame) const {
    return frame.len >= 0 && frame.pos <= size_ - frame.len;
  }

 private:
  const std::uint8_t* data_;
  long long size_;
  bool grows_;
};

// A positive status of the headers is the number of bytes that are missing.
long long OfHeader(long long status) {
  return status > 0 ? mkvparser::E_BUFFER_NOT_FULL : status;
}

long long ReadBlocks(const MemoryReader& reader, const mkvparser::Cluster* cluster, Block* blocks,
                     std::int64_t capacity, std::int64_t* count) {
  const mkvparser::BlockEntry* entry = nullptr;
  long status = cluster->GetFirst(entry);
  while (status == 0 && entry && !entry->EOS()) {
    const mkvparser::Block* block = entry->GetBlock();
    // The reader does not check that the data of the last block is there.
    if (block->GetFrameCount() != 1 || !reader.Contains(block->GetFrame(0)))
      return mkvparser::E_BUFFER_NOT_FULL;
    if (*count == capacity) return mkvparser::E_PARSE_FAILED;
    blocks[*count].track = static_cast<std::int32_t>(block->GetTrackNumber());
    blocks[*count].milliseconds = static_cast<std::int32_t>(block->GetTime(cluster) / 1000000);
    ++*count;
    status = cluster->GetNext(entry, entry);
  }
  return status;
}

void ReadCues(const mkvparser::Segment& segment, File* file) {
  const mkvparser::Cues* cues = segment.GetCues();
  if (!cues) return;
  while (!cues->DoneParsing()) cues->LoadCuePoint();
  const mkvparser::Tracks* tracks = segment.GetTracks();
  for (const mkvparser::CuePoint* cue = cues->GetFirst(); cue; cue = cues->GetNext(cue)) {
    ++file->cue_count;
    for (unsigned long n = 0; n < tracks->GetTracksCount(); ++n) {
      const mkvparser::CuePoint::TrackPosition* position = cue->Find(tracks->GetTrackByIndex(n));
      if (!position) continue;
      const mkvparser::BlockEntry* entry = cues->GetBlock(cue, position);
      if (!entry || entry->EOS()) continue;
      const mkvparser::Block* block = entry->GetBlock();
      if (block->IsKey() && block->GetTime(entry->GetCluster()) == cue->GetTime(&segment))
        ++file->valid_cue_count;
    }
  }
}

long long Read(MemoryReader* reader, std::int64_t last, Block* blocks, std::int64_t capacity,
               File* file) {
  mkvparser::EBMLHeader header;
  long long position = 0;
  long long status = header.Parse(reader, position);
  if (status != 0) return OfHeader(status);
  mkvparser::Segment* created = nullptr;
  status = mkvparser::Segment::CreateInstance(reader, position, created);
  std::unique_ptr<mkvparser::Segment> segment(created);
  if (status != 0) return OfHeader(status);
  status = segment->ParseHeaders();
  if (status != 0) return OfHeader(status);
  if (!segment->GetInfo() || !segment->GetTracks()) return mkvparser::E_FILE_FORMAT_INVALID;
  file->duration = segment->GetDuration();
  // 2 = an element that is no cluster.
  do status = segment->LoadCluster();
  while (status == 0 || status == 2);
  file->cluster_count = static_cast<std::int64_t>(segment->GetCount());
  const mkvparser::Cluster* cluster = segment->GetFirst();
  for (std::int64_t skipped = file->cluster_count - last; skipped > 0; --skipped)
    cluster = segment->GetNext(cluster);
  while (cluster && !cluster->EOS()) {
    const long long of_blocks = ReadBlocks(*reader, cluster, blocks, capacity, &file->block_count);
    if (of_blocks < 0) return of_blocks;
    cluster = segment->GetNext(cluster);
  }
  ReadCues(*segment, file);
  return status;
}

}  // namespace

// `grows`: the file has no end yet, so that what is missing is no error. All clusters are loaded,
// and the blocks of the last ones are read.
extern "C" void recording_tests_read_webm(const std::uint8_t* data, std::int64_t size, bool grows,
                                          std::int64_t last, Block* blocks, std::int64_t capacity,
                                          File* file) {
  *file = File{0, 0, 0, -1, 0, 0};
  MemoryReader reader(data, size, grows);
  file->status = Read(&reader, last, blocks, capacity, file);
}
