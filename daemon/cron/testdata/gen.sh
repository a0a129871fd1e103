#!/bin/bash
# Writes dst.tsv and leap.tsv: what GNU date says of zones and leap years, so that
# the expectations do not come from Go's package time. Run it in this directory.
#
# dst.tsv    zone, expression, DST (- default, s SkipMissing, b RunBoth), after,
#            then the due instants as seconds since 1970, each with the first
#            letter of its note (g gap, f fold) and x when skipped
# leap.tsv   zone, expression, after, due instants
set -eu
export LC_ALL=C

offset() { # offset ZONE INSTANT: seconds east of UTC
	local z
	z=$(TZ=$1 date -d "@$2" +%:::z)
	case $z in *:*) ;; *) z=$z:00 ;; esac
	local sign=${z:0:1} h=${z:1:2} m=${z:4:2}
	echo $((${sign}1 * (10#$h * 3600 + 10#$m * 60)))
}

changes() { # changes ZONE FROM TO: the instants at which the offset changes
	local a=$(date -u -d "$2" +%s) end=$(date -u -d "$3" +%s) b lo hi mid
	while [ "$a" -lt "$end" ]; do
		b=$((a + 864000))
		if [ "$(offset "$1" "$a")" != "$(offset "$1" "$b")" ]; then
			lo=$a hi=$b
			while [ $((hi - lo)) -gt 1 ]; do
				mid=$(((lo + hi) / 2))
				if [ "$(offset "$1" "$mid")" = "$(offset "$1" "$a")" ]; then lo=$mid; else hi=$mid; fi
			done
			echo "$hi"
		fi
		a=$b
	done
}

fixed() { TZ=UTC date -d "@$1" '+%-M %-H %-d %-m *'; } # fixed WALL: the expression that names it
row() { local IFS=$'\t'; echo "$*"; }

gap() { # gap ZONE INSTANT FROM-OFFSET TO-OFFSET
	local half=$((($4 - $3) / 120 * 60)) w last next
	w=$(($2 + $3 + half))
	if TZ=$1 date -d "$(TZ=UTC date -d "@$w" '+%F %T')" >/dev/null 2>&1; then
		echo "gen.sh: $1 does show a time in its gap" >&2
		exit 1
	fi
	row "$1" "$(fixed $w)" - $(($2 - 86400)) "$2g"
	row "$1" "$(fixed $w)" s $(($2 - 86400)) "$2gx"
	# the last minute before, and the first one after
	last=$(($2 + $3 - 60)) next=$(($2 + $4))
	row "$1" "$(fixed $last)" - $(($2 - 86400)) $(($2 - 60))
	row "$1" "$(fixed $next)" s $(($2 - 86400)) "$2"
}

fold() { # fold ZONE INSTANT FROM-OFFSET TO-OFFSET
	local half=$((($3 - $4) / 120 * 60)) one two
	one=$(($2 - half)) two=$(($2 + $3 - $4 - half))
	if [ "$(TZ=$1 date -d "@$one" '+%F %T')" != "$(TZ=$1 date -d "@$two" '+%F %T')" ]; then
		echo "gen.sh: $1 does not show a time of its fold twice" >&2
		exit 1
	fi
	row "$1" "$(fixed $((one + $3)))" - $(($2 - 86400)) "$one"
	row "$1" "$(fixed $((one + $3)))" b $(($2 - 86400)) "$one" "${two}f"
	# the first minute of the second pass, and the first one that is new again
	row "$1" "$(fixed $(($2 + $4)))" - $(($2 - 86400)) $(($2 - ($3 - $4)))
	row "$1" "$(fixed $(($2 + $3)))" - $(($2 - 86400)) $(($2 + $3 - $4))
}

interval() { # interval ZONE INSTANT: what the clock shows at each full minute around it
	local t due=()
	for ((t = $2 - 5400; t <= $2 + 7200; t += 60)); do
		case $(TZ=$1 date -d "@$t" +%M) in 00 | 30) due+=("$t") ;; esac
	done
	row "$1" '*/30 * * * *' - $(($2 - 5401)) "${due[@]}"
}

dst() { # dst ZONE FROM TO
	local t a b
	for t in $(changes "$@"); do
		a=$(offset "$1" $((t - 1))) b=$(offset "$1" "$t")
		if [ "$a" -lt "$b" ]; then gap "$1" "$t" "$a" "$b"; else fold "$1" "$t" "$a" "$b"; fi
		interval "$1" "$t"
	done
}

leap() { # leap ZONE HH:MM FROM TO: 29 February of each year that has one
	local y due=()
	for ((y = $3; y <= $4; y++)); do
		if t=$(TZ=$1 date -d "$y-02-29 $2" +%s 2>/dev/null); then due+=("$t"); fi
	done
	row "$1" "${2#*:} ${2%:*} 29 2 *" "$(date -u -d "$3-01-01" +%s)" "${due[@]}"
}

{
	dst America/New_York 2026-01-01 2027-01-01
	dst Europe/Berlin 2026-01-01 2027-01-01
	dst Europe/Berlin 2060-01-01 2061-01-01
	dst Australia/Lord_Howe 2026-01-01 2027-01-01
	dst America/Sao_Paulo 2017-01-01 2020-01-01
	dst Africa/Casablanca 2026-01-01 2027-01-01
	dst Pacific/Apia 2011-12-01 2012-01-15
} >dst.tsv
{
	leap UTC 00:00 1999 2008
	leap UTC 23:59 2021 2032
	leap America/New_York 03:30 2023 2024
	leap Europe/Berlin 12:05 2090 2112
	leap Australia/Lord_Howe 00:00 2095 2105
} >leap.tsv
