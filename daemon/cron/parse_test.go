package cron_test

import (
	"strings"
	"testing"
	"time"

	"github.com/exocomp/exocomp/daemon/cron"
)

func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"* * * * *":                   "* * * * *",
		"  0   3 * *  MON-Fri ":       "0 3 * * mon-fri",
		"00 07 01 JAN 7":              "00 07 01 jan 7",
		"*/15,7 1-9/2 1,2,31 */3 */2": "*/15,7 1-9/2 1,2,31 */3 */2",
		"0 0 * * sun-sat":             "0 0 * * sun-sat",
		"0 0 29 2 *":                  "0 0 29 2 *",
		"0 0 30 2 1":                  "0 0 30 2 1",
		"0 0 31 2,3 *":                "0 0 31 2,3 *",
		"@DAILY":                      "@daily",
		" @midnight ":                 "@midnight",
		"@Every 90m":                  "@every 1h30m0s",
		"@every 8784h":                "@every 8784h0m0s",
		"@every 1s":                   "@every 1s",
	} {
		e := parse(t, in)
		if e.String() != want {
			t.Errorf("%q is printed as %q, want %q", in, e, want)
		}
		if parse(t, e.String()) != e {
			t.Errorf("%q is another expression once it was printed", in)
		}
	}
}

func TestNamesAreNumbers(t *testing.T) {
	now := day(t, "2026-12-07")
	for a, b := range map[string]string{
		"0 0 * jan,MAR-may *": "0 0 * 1,3-5 *",
		"0 0 * * sun":         "0 0 * * 7",
		"0 0 * * mon-wed,fri": "0 0 * * 1-3,5",
		"0 0 * * sat-7":       "0 0 * * 0,6",
		"@yearly":             "@annually",
		"@daily":              "@midnight",
		"@monthly":            "0 0 1 * *",
		"@weekly":             "0 0 * * 0",
		"@hourly":             "0 * * * *",
		"0 0 * * 1-7/2":       "0 0 * * 0,1,3,5",
		"0 0 1-31 * 0":        "0 0 * * 0-7", // either day will do
	} {
		at1, at2 := now, now
		for range 50 {
			one, _ := parse(t, a).Next(at1, nil, cron.DST{}, now)
			two, _ := parse(t, b).Next(at2, nil, cron.DST{}, now)
			if !one.At.Equal(two.At) {
				t.Fatalf("%q is due at %s, %q at %s", a, one.At, b, two.At)
			}
			at1, at2 = one.At, two.At
		}
	}
}

// Each input, and the words that its refusal must have: what, why, what instead.
var refused = map[string]string{
	"":                                      "empty|5 fields|day-of-month|@daily",
	"   ":                                   "empty|5 fields",
	"* * * *":                               "4 of 5 fields|minute hour day-of-month month day-of-week|write *",
	"0 * * * * *":                           "6 fields|5 are allowed|remove seconds|@every",
	"0 0 1 1 * * 2026":                      "7 fields|years|remove",
	"0 3 * * * root backup.sh":              "7 fields|user and command",
	strings.Repeat("1,", 101) + "1 * * * *": "200|split",
	"TZ=UTC 0 0 * * *":                      "TZ=UTC|time zone|setting of the schedule|remove",
	"CRON_TZ=Europe/Berlin 0 3 * * *":       "CRON_TZ=|time zone|setting of the schedule|remove",
	"TZ=":                                   "time zone|remove",
	"@reboot":                               "@reboot|no point in time|service manager",
	"@fortnightly":                          `"@fortnightly"|not known|@weekly|@every DURATION`,
	"@":                                     "not known|@daily",
	"@daily 5":                              `@daily|alone|"5"|remove`,
	"@every":                                "@every|one duration|@every 15m",
	"@every 1h 2m":                          "one duration|has 2|@every 15m",
	"@every 5":                              `"5"|not a duration|h, m, s|@every 15m`,
	"@every 1d":                             `"1d"|not a duration|@every 36h`,
	"@every 999ms":                          "1s|366 days",
	"@every 0s":                             "1s|366 days",
	"@every -5s":                            "1s|366 days",
	"@every 8785h":                          "1s|366 days",
	"@every 1.5s":                           "whole seconds|@every 90s",
	"0 0 L * *":                             `day-of-month "l"|L|cron(8)|28-31`,
	"0 0 LW * *":                            "day-of-month|W|cron(8)|1-5",
	"0 0 15W * *":                           "day-of-month|W|cron(8)|1-5",
	"0 0 L-3 * *":                           "day-of-month|L|cron(8)|28-31",
	"0 0 * * 5L":                            "day-of-week|L|cron(8)",
	"0 0 * * friL":                          "day-of-week|L|cron(8)",
	"0 0 * * 5#2":                           "day-of-week|#|cron(8)|let the job check",
	"0 0 * * fri#2":                         "day-of-week|#|cron(8)",
	"0 0 ? * 1":                             "day-of-month|?|cron(8)|write *",
	"60 * * * *":                            `minute "60"|out of range|0-59`,
	"0 24 * * *":                            `hour "24"|out of range|0-23|midnight is 0`,
	"0 0 0 * *":                             `day-of-month "0"|out of range|1-31`,
	"0 0 32 * *":                            "day-of-month|out of range|1-31",
	"0 0 * 0 *":                             "month|out of range|1-12|jan-dec",
	"0 0 * 13 *":                            "month|out of range|1-12",
	"0 0 * * 8":                             "day-of-week|out of range|0-7|Sunday",
	"0-60 * * * *":                          `minute "0-60"|out of range|0-59`,
	"99999999999999999999 * * * *":          "minute|out of range|0-59",
	"-1 * * * *":                            `minute "-1"|0-59`,
	"+1 * * * *":                            `minute "+1"|0-59`,
	"1- * * * *":                            `minute "1-"|0-59`,
	"1-2-3 * * * *":                         "minute|0-59",
	"1.5 * * * *":                           "minute|0-59",
	"x * * * *":                             `minute "x"|not understood|0-59`,
	"mon * * * *":                           "minute|not understood|0-59",
	"0 0 * mon *":                           "month|not understood|jan-dec",
	"0 0 * january *":                       "month|not understood|jan-dec",
	"0 0 * * jan":                           "day-of-week|not understood|sun-sat",
	"0 0 * * mo":                            "day-of-week|not understood|sun-sat",
	"0 22-2 * * *":                          `hour "22-2"|backwards|22-23,0-2`,
	"0 0 * dec-feb *":                       "month|backwards|12-12,1-2",
	"0 0 * * fri-sun":                       "day-of-week|backwards|5-7|Sunday",
	"0 0 * * sat-tue":                       "day-of-week|backwards|6-7,0-2",
	"*/0 * * * *":                           `minute "*/0"|step 0|at least 1`,
	"0-9/00 * * * *":                        "minute|step 0|at least 1",
	"*/ * * * *":                            "minute|step|*/5",
	"*/x * * * *":                           "minute|step|*/5",
	"*/-5 * * * *":                          "minute|step|*/5",
	"*/5/5 * * * *":                         "minute|step|*/5",
	"*/90 * * * *":                          `minute "*/90"|step above 59|@every`,
	"0 */24 * * *":                          "hour|step above 23|@every",
	"5/10 * * * *":                          `minute "5/10"|step without a range|5-59/N`,
	"0 0 * * mon/2":                         "day-of-week|step without a range|1-7/N",
	"1,,2 * * * *":                          `minute "1,,2"|empty item|remove the comma`,
	"1, * * * *":                            "minute|empty item",
	"0 ,1 * * *":                            "hour|empty item",
	"** * * * *":                            "minute|* inside|*/5",
	"*5 * * * *":                            "minute|* inside|*/5",
	"0-* * * * *":                           "minute|* inside|*/5",
	"0 0 30 2 *":                            `day-of-month "30"|month "2"|never|29`,
	"0 0 31 4 *":                            `day-of-month "31"|month "4"|never`,
	"0 0 30 feb *":                          `month "feb"|never|29`,
	"0 0 31 feb,4,jun-jun,9,11 *":           "day-of-month|month|never",
	"0 0 30 2 */2":                          "day-of-month|month|never",
	"0 3 * * *\n":                           `\n|byte 9|plain ASCII|spaces`,
	"0\t3 * * *":                            `\t|byte 1|spaces`,
	"0 3 * * *\x00":                         `\x00|byte 9`,
	"\x1b[31m0 3 * * *":                     `\x1b|byte 0`,
	"∗ * * * *":                             `\u2217|byte 0|plain ASCII`,
	"0 0 * * \xff":                          `\xff|byte 8`,
	"0 3\u00a0* * *":                        `\u00a0|byte 3|spaces`,
	"\"'`$(rm -rf /)<script>%s%d * * * *":   "fields",
	"%s%s%s%n\"<b>" + strings.Repeat("%x", 50) + " * * * *": `minute "%s%s%s%n\"<b>|...|0-59`,
}

func TestRefusalsNameTheFieldTheRuleAndTheRemedy(t *testing.T) {
	for in, words := range refused {
		e, err := cron.Parse(in)
		if err == nil {
			t.Errorf("%q is %q", in, e)
			continue
		}
		checkMessage(t, in, err, strings.Split(words, "|")...)
		if e != (cron.Expr{}) {
			t.Errorf("%q is refused, and yet %q", in, e)
		}
	}
}

func FuzzParse(f *testing.F) {
	for in := range refused {
		f.Add(in, int64(1772946000), byte(0))
	}
	for i, in := range handPicked {
		f.Add(in, int64(1793509200), byte(i))
	}
	f.Add("@every 90s", int64(0), byte(7))
	var locs []*time.Location
	for _, name := range []string{"UTC", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Monrovia",
		"America/Sao_Paulo", "Africa/Casablanca", "Pacific/Kwajalein"} {
		locs = append(locs, zone(f, name))
	}
	f.Fuzz(func(t *testing.T, in string, now int64, choice byte) {
		e, err := cron.Parse(in)
		if err != nil {
			checkMessage(t, in, err)
			return
		}
		if again, err := cron.Parse(e.String()); err != nil || again != e {
			t.Fatalf("%q is printed as %q, which is %q, %v", in, e, again, err)
		}
		dst := cron.DST{SkipMissing: choice&1 != 0, RunBoth: choice&2 != 0}
		loc, anchor := locs[int(choice>>2)%len(locs)], time.Unix(now/2, now%1e9)
		after := time.Unix(now%253402300799, now&0x1fffffff)
		for range 20 {
			due, ok := e.Next(after, loc, dst, anchor)
			if !ok {
				return
			}
			if again, _ := e.Next(after, loc, dst, anchor); again != due {
				t.Fatalf("%q after %s: %+v, and then %+v", e, after, due, again)
			}
			if before, ok := e.Next(due.At.Add(-1), loc, dst, anchor); !ok || before != due {
				t.Fatalf("%q: %+v after %s, but %+v just before it", e, due, after, before)
			}
			if !due.At.After(after) {
				t.Fatalf("%q after %s: %+v", e, after, due)
			}
			after = due.At
		}
	})
}
