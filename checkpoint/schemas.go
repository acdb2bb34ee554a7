package checkpoint

import (
	"bytes"
	"errors"
)

// Schemas keeps what the reader needs to name the columns of a table.
type Schemas struct{ files *engine }

// Save stores the columns of a table durably, in place of what was stored before under that name. An empty blob removes it.
func (s *Schemas) Save(table string, blob []byte) error {
	if table == "" {
		return errors.New("checkpoint: a schema version needs the name of its table")
	}
	return s.files.update(func(b *batch) error {
		key := append([]byte{kindSchema}, table...)
		if len(blob) == 0 {
			return b.Delete(key, nil)
		}
		return b.putBlob(key, blob)
	}, nil)
}

// All returns what Save stored, by table. The caller owns the blobs.
func (s *Schemas) All() (map[string][]byte, error) {
	out := map[string][]byte{}
	err := s.files.scan(kindSchema, kindSchema, func(key, value []byte) error {
		blob, err := unseal(key, value)
		out[string(key[1:])] = bytes.Clone(blob)
		return err
	})
	return out, err
}
