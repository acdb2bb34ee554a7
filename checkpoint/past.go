package checkpoint

// SavePast stores a piece of what was measured under a number, in place of what was there: the caller bounds the numbers. It is not synced: a crash
// of the machine may lose the last pieces.
func (s *Store) SavePast(slot uint64, piece []byte) error {
	if err := s.startWriting(); err != nil {
		return err
	}
	defer s.endWriting()
	s.key = numberedKey(s.key[:0], kindPast, slot)
	s.val = append(append(s.val[:0], blankHeader[:]...), piece...)
	if err := s.put(); err != nil {
		return err
	}
	return s.commitUnsynced()
}

// Past calls each with every stored piece, in the order of their numbers. A piece is valid during the call.
func (s *Store) Past(each func(slot uint64, piece []byte)) error {
	return s.scan(kindPast, kindPast, func(key, value []byte) error {
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
