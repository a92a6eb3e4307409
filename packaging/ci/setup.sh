#!/bin/sh
# Installs a release for the jobs of a CI service, without root.
# VERSION: the release. URL: where its files are. FOLDER: where it goes (default ~/.ferroce).
# LIBRARIES=true: later steps load its libraries, also without `ferroce run`.
# On GitHub later steps have the command in their PATH. Elsewhere source FOLDER/environment.
set -eu
name=ferroce-$VERSION-$(uname -m)-linux-gnu
folder=${FOLDER:-$HOME/.ferroce}
mkdir -p "$folder"
cd "$folder"
for file in "$name.tar.gz" SHA256SUMS; do
	case $URL in
	/*) cp "$URL/$file" "$file" ;;
	*) curl --fail --silent --show-error --location --retry 3 --output "$file" "$URL/$file" ;;
	esac
done
grep " $name.tar.gz\$" SHA256SUMS | sha256sum --check --strict --quiet
tar -xzf "$name.tar.gz"
rm "$name.tar.gz" SHA256SUMS
command=$folder/$name/bin
"$command/ferroce" --version
{
	echo "export PATH=\"$command:\$PATH\""
	if [ "${LIBRARIES:-true}" = true ]; then
		"$command/ferroce" env
	fi
} > environment
if [ -n "${GITHUB_ENV:-}" ]; then
	echo "$command" >> "$GITHUB_PATH"
	# What sourcing the file would change, in the form of that file: name, then value.
	env -u _ > before
	(. ./environment && env -u _ > after)
	sort before > before.sorted
	sort after | comm -13 before.sorted - | grep -v -e '^PATH=' -e '^PWD=' >> "$GITHUB_ENV" || true
	rm before after before.sorted
fi
