# Valkey's own test over RDMA, in its source folder, in a job that has Ferroce (setup.sh). It needs
# neither root nor a kernel module.
make -j"$(nproc)" BUILD_RDMA=yes
# The script ends without writing out what a pipe has not got yet.
PYTHONUNBUFFERED=1 ./runtest-rdma | tee runtest-rdma.log
# It ends with 0 whatever happens.
grep 'test over .* \[OK\]' runtest-rdma.log
