package translate

import (
	"testing"
)

func TestText(t *testing.T) {
	for english, chinese := range map[string]string{
		"state":                             "状态",
		"  state":                           "  状态",
		"":                                  "",
		"shop.orders":                       "shop.orders",
		"nothing that the catalogue has: 7": "nothing that the catalogue has: 7",
		"encrypted with TLS_AES_128":        "已加密，TLS_AES_128",
		// what a person wrote may contain whatever it likes
		"topic 50%s%d is suspended, its rows wait: no route, %v":                                                                        "topic 50%s%d 已挂起，它的行在等待：no route, %v",
		"the binlog is not being read: dial tcp 127.0.0.1:3306: refused; what to do: docs/operations/database.md, The database is away": "没有在读 binlog：dial tcp 127.0.0.1:3306: refused；处理办法：docs/zh/database.md，数据库不可用",
		"3 rows of shop.m are FAILED; the newest: id 7 (m-7), permanent: no such topic; list them with: canal-outbox messages list --table shop.m; what to do: docs/operations/messages.md, FAILED rows": "3 行（表 shop.m）为 FAILED；最新的：id 7（m-7），permanent：no such topic；" +
			"用这条命令列出：canal-outbox messages list --table shop.m；处理办法：docs/zh/messages.md，FAILED 行",
		"pending about 3, sent 1, oldest pending 3s (counted 2s ago)": "待发送 约 3，已发送 1，最早的待发送 3s（2s 前统计）",
		"pending 3, consumed 1, sent 2 (counted 2s ago)":              "待发送 3，consumed 1，已发送 2（2s 前统计）",
		"other, pending 3": "other, pending 3",
		"needs REPLICATION CLIENT: whether the log still has the checkpoint (x)": "需要权限 REPLICATION CLIENT：binlog 里是否还有位点（x）",
	} {
		if got := Chinese().Text(english); got != chinese {
			t.Errorf("%q:\ngot  %q\nwant %q", english, got, chinese)
		}
	}
	if got := (*Catalogue)(nil).Text("state"); got != "state" {
		t.Error(got)
	}
}

func TestOf(t *testing.T) {
	for _, one := range []struct {
		environment map[string]string
		chinese     bool
	}{
		{map[string]string{}, false},
		{map[string]string{"LANG": "C"}, false},
		{map[string]string{"LANG": "POSIX"}, false},
		{map[string]string{"LANG": "en_US.UTF-8"}, false},
		{map[string]string{"LANG": "de_CH.UTF-8@euro"}, false},
		{map[string]string{"LANG": "zh_CN.UTF-8"}, true},
		{map[string]string{"LANG": "zh_CN.utf8"}, true},
		{map[string]string{"LANG": "zh_CN"}, true},
		{map[string]string{"LANG": "zh-Hans-CN"}, true},
		{map[string]string{"LANG": "zh_TW.UTF-8"}, true},
		{map[string]string{"LANG": "zh_CN.GB18030"}, false},
		{map[string]string{"LANG": "zh_CN.UTF-8", "LC_ALL": "C.UTF-8"}, false},
		{map[string]string{"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN.UTF-8"}, true},
		{map[string]string{"LANG": "���"}, false},
	} {
		if got := Of(func(name string) string { return one.environment[name] }); (got != nil) != one.chinese {
			t.Errorf("%v: Chinese %t", one.environment, got != nil)
		}
	}
}

func TestLines(t *testing.T) {
	if got := Chinese().Lines("state\tworking\nOK\tsource\tencrypted with y\n  !\tencrypted with x\n\nlast"); got != "状态\tworking\nOK\tsource\t已加密，y\n  !\t已加密，x\n\nlast" {
		t.Errorf("%q", got)
	}
}
