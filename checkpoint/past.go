package checkpoint

// Past keeps pieces of what was measured under numbers that come again: the caller bounds them.
type Past struct{ files *engine }

// Save stores a piece in place of the one with the same number. It is not synced: a crash of the machine may lose the last pieces.
func (p *Past) Save(slot uint64, piece []byte) error {
	return p.files.updateUnsynced(func(b *batch) error { return b.putBlob(numberedKey(nil, kindPast, slot), piece) })
}

// All calls each with every stored piece, in the order of their numbers. A piece is valid during the call.
func (p *Past) All(each func(slot uint64, piece []byte)) error {
	return p.files.scan(kindPast, kindPast, func(key, value []byte) error {
		slot, err := numberOf(key)
		if err != nil {
			return err
		}
		piece, err := unseal(key, value)
		if err == nil {
			each(slot, piece)
		}
		return err
	})
}
