#!/bin/sh
# Do the step of a recipe that builds a module and cuts the power, on this Debian host instead of in a job:
#
#   vms/ci/try.sh vms/ci/github.yml DIR     DIR holds the module's folder, $MODULE (default: fs/ext4), and gets reports/
#
# $MODES, $SERIES: as in the recipe. Needs root, for the headers of the kernel, and `powercut` in PATH. It ends with the
# code of the step: 5 of GitLab's is passed by its allow_failure.
set -eu
recipe=$1
step=$(awk '
	/^ *(run|- ): *\|$|^ *- \|$/ { step = ""; inside = 1; next }
	inside && /^ *(- [a-z]|after_script:)/ { inside = 0 }
	inside { step = step $0 "\n"; if ($0 ~ /powercut run /) found = 1 }
	!inside && found { exit }
	END { printf "%s", step }
' "$recipe")
cd "$2"
export MODULE="${MODULE:-fs/ext4}" MODES="${MODES:-ext4/ordered}" SERIES="${SERIES:-6.12}"
exec sh -euc "$step"
