package checkpoint

import "time"

// Day is what the next digest of alerts counts.
type Day struct {
	Since  time.Time `json:"since"`
	Failed int       `json:"failed"`
	Again  int       `json:"again"`
}

// Digest keeps the counts of the alerts.
type Digest struct{ files *engine }

// Save stores the counts durably.
func (d *Digest) Save(day Day) error {
	return d.files.update(func(b *batch) error { return b.putJSON([]byte{kindDay}, day) }, nil)
}

// Day returns them; the zero Day when there are none.
func (d *Digest) Day() (day Day, err error) {
	err = d.files.scan(kindDay, kindDay, func(key, value []byte) error { return decodeJSON(key, value, &day) })
	return day, err
}
