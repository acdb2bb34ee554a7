package canal

import "strconv"

// A table map names the character set of a text column by the id of a collation, information_schema by its name. What the bytes of a set are in UTF-8 is
// outbox/charset's (A49).

// collations are the ids of information_schema.COLLATIONS, of MySQL 5.7 to 9 and MariaDB up to 11.8, for the sets whose text can be read. MariaDB's NO PAD
// collations have 1024 added; its uca1400 collations are in blocks of 256 from 2048: utf8mb3, utf8mb4, and then those of other sets.
var collations = []struct {
	from, to uint64
	set      string
}{
	{63, 63, "binary"},
	{11, 11, "ascii"},
	{65, 65, "ascii"},
	{33, 33, "utf8mb3"},
	{76, 76, "utf8mb3"},
	{83, 83, "utf8mb3"},
	{192, 223, "utf8mb3"},
	{576, 579, "utf8mb3"},
	{45, 46, "utf8mb4"},
	{224, 247, "utf8mb4"},
	{255, 323, "utf8mb4"},
	{608, 632, "utf8mb4"},
	{5, 5, "latin1"},
	{8, 8, "latin1"},
	{15, 15, "latin1"},
	{31, 31, "latin1"},
	{47, 49, "latin1"},
	{94, 94, "latin1"},
	{24, 24, "gb2312"},
	{86, 86, "gb2312"},
	{28, 28, "gbk"},
	{87, 87, "gbk"},
	{248, 250, "gb18030"},
	{2048, 2048 + 255, "utf8mb3"},
	{2048 + 256, 2048 + 511, "utf8mb4"},
}

// charsetOf is the set of a collation; for one whose set cannot be read a text that is no set's name.
func charsetOf(collation uint64) string {
	id := collation
	if id >= 1024 && id < 2048 {
		id -= 1024
	}
	for _, c := range collations {
		if id >= c.from && id <= c.to {
			return c.set
		}
	}
	return "of collation " + strconv.FormatUint(collation, 10)
}
