package checkpoint

import "time"

// Day is what the next digest of alerts counts.
type Day struct {
	Since  time.Time `json:"since"`
	Failed int       `json:"failed"`
	Again  int       `json:"again"`
}

var dayKey = []byte{kindDay}

// KeepDay writes the counts of the digest down, durably.
func (s *Store) KeepDay(d Day) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	if err := s.putJSON(dayKey, d); err != nil {
		return err
	}
	return s.sync()
}

// Day returns them; the zero Day when there are none.
func (s *Store) Day() (d Day, err error) {
	err = s.scan(kindDay, kindDay, func(key, value []byte) error { return decodeJSON(key, value, &d) })
	return d, err
}
