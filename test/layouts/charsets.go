package layouts

// Charset is a character set that a database may have as its default.
type Charset struct {
	Name  string
	Text  string // a text of the set
	Lacks string // a character that the set does not have
}

// Charsets are the defaults of old servers, and what else is used in China.
func Charsets() []Charset {
	return []Charset{{"latin1", "né€ÿ", "中"}, {"gbk", "订单丂é", "ज"}, {"utf8mb3", "订单ज", "😀"}}
}

// In is the layout in a database of a character set: the same DDL, rows whose keys and message ids end with a text of the set, and words that the set has.
func (l *Layout) In(set Charset) *Layout {
	c := *l
	if set.Name == "latin1" && l.Name == "B" { // the owners of such a table have words that it can hold
		c.Config = "preset: message-state"
		c.Codes = map[string]string{
			"pending": "pending", "sending": "sending", "sent": "sent", "failed": "failed", "consumed": "consumed", "suspended": "suspended",
		}
	}
	idColumn := l.LogOnly() || l.Name == "binary" // the id has a fixed length and is the message id
	c.row = func(n int, topic, body string) []any {
		args := l.row(n, topic, body)
		for i, arg := range args {
			text, is := arg.(string)
			switch {
			case !is:
			case text == l.Codes["pending"] && c.Codes["pending"] != "":
				args[i] = c.Codes["pending"]
			case text == l.Key(n) && l.key != nil, text == l.id(n) && !idColumn:
				args[i] = text + set.Text
			}
		}
		return args
	}
	if !idColumn {
		c.id = func(n int) string { return l.id(n) + set.Text }
	}
	if l.key != nil {
		c.key = func(n int) string { return l.key(n) + set.Text }
	}
	return &c
}
