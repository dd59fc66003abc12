#!/bin/sh
# Do the step of a recipe that builds a module or a program and cuts the power, on this Debian host instead of in a job:
#
#   vms/ci/try.sh vms/ci/github.yml DIR             DIR holds the module's folder, $MODULE (default: fs/ext4)
#   vms/ci/try.sh vms/ci/program/github.yml DIR     DIR holds the program's folder, $PROGRAM (default: crash/my-db)
#
# DIR gets reports/. $MODES, $SERIES: as in the recipe. Needs `powercut` in PATH and, for the headers of the kernel of a
# module, root. It ends with the code of the step: 5 of GitLab's is passed by its allow_failure.
set -eu
recipe=$1
step=$(awk '
	/^ *(run|- ): *\|$|^ *- \|$/ { step = ""; inside = 1; next }
	inside && /^ *(- [a-z]|after_script:)/ { inside = 0 }
	inside { step = step $0 "\n"; if ($0 ~ /powercut run /) found = 1 }
	!inside && found { exit }
	END { printf "%s", step }
' "$recipe")
named() { sed -n "s/^ *$1: *//p" "$recipe" | tr -d '"'; }
export MODULE="${MODULE:-$(named MODULE)}" PROGRAM="${PROGRAM:-$(named PROGRAM)}"
export MODES="${MODES:-$(named MODES)}" SERIES="${SERIES:-$(named SERIES)}"
cd "$2"
exec sh -euc "$step"
