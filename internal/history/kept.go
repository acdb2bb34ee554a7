package history

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"

	"github.com/canal-outbox/canal-outbox/internal/operator"
	"go.uber.org/zap"
)

// Store keeps pieces of the past under numbers that come again; checkpoint.Past implements it.
type Store interface {
	Save(slot uint64, piece []byte) error
	// All calls each with every stored piece, which is valid during the call.
	All(each func(slot uint64, piece []byte)) error
}

// markSlots is where the numbers of marks begin; those of samples are below.
const markSlots = 1 << 32

// piece is what is to be stored.
type piece struct {
	slot uint64
	data []byte
}

// Keep takes over what another process has left in a store, and stores what is recorded from now on there, with Run. A recorder that has a past
// keeps that. One piece that cannot be read is left out and harms no other.
func (r *Recorder) Keep(store Store, log *zap.Logger) error {
	type stored struct {
		slot uint64
		operator.Mark
	}
	var samples []sample
	var marks []stored
	err := store.All(func(slot uint64, data []byte) {
		if slot < markSlots {
			if s, ok := decodeSample(data); ok {
				samples = append(samples, s)
			}
			return
		}
		m := stored{slot: slot}
		if json.Unmarshal(data, &m.Mark) == nil { // else it is left out
			marks = append(marks, m)
		}
	})
	if err != nil {
		return err
	}
	slices.SortFunc(samples, func(a, b sample) int { return cmp.Compare(a.at, b.at) })
	slices.SortStableFunc(marks, func(a, b stored) int { return a.At.Compare(b.At) })
	r.mu.Lock()
	defer r.mu.Unlock()
	r.store, r.log = store, log
	if len(r.samples)+len(r.marks) > 0 {
		return nil
	}
	r.samples = samples[max(0, len(samples)-maxSamples):]
	for _, m := range marks[max(0, len(marks)-maxMarks):] {
		r.marks = append(r.marks, m.Mark)
		r.nextMark = (m.slot - markSlots + 1) % maxMarks
	}
	return nil
}

// remember adds a piece to those that are stored next. Callers hold mu.
func (r *Recorder) remember(slot uint64, data []byte) {
	if r.store != nil && len(r.unsaved) < maxMarks {
		r.unsaved = append(r.unsaved, piece{slot, data})
	}
}

// save stores what remember has added. Without mu: a slow disk must not hold up those who ask for the past.
func (r *Recorder) save() {
	r.mu.Lock()
	unsaved, store, log := r.unsaved, r.store, r.log
	r.unsaved = nil
	r.mu.Unlock()
	for _, p := range unsaved {
		if err := store.Save(p.slot, p.data); err != nil {
			log.Warn("what was measured cannot be stored: it is lost with this process", zap.Error(err))
			return
		}
	}
}

// encode is the time and the columns, in little endian. Later releases add columns at the end.
func (s sample) encode() []byte {
	data := binary.LittleEndian.AppendUint64(nil, uint64(s.at))
	for _, v := range s.values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return data
}

func (s sample) slot() uint64 {
	return uint64(s.at) / uint64(operator.SampleStep.Seconds()) % uint64(maxSamples)
}

func decodeSample(data []byte) (s sample, ok bool) {
	if len(data) < 8 {
		return s, false
	}
	s.at = int64(binary.LittleEndian.Uint64(data))
	data = data[8:]
	for c := range s.values {
		s.values[c] = float32(math.NaN())
		if len(data) >= 4 {
			s.values[c] = math.Float32frombits(binary.LittleEndian.Uint32(data))
			data = data[4:]
		}
	}
	return s, true
}
