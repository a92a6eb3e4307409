/*
 * Opens a device and a listener, and registers memory that it may not: for tests of what the
 * environment and the system leave possible.
 *
 * usage: rights
 */
#include "common.h"

#include <sys/auxv.h>
#include <sys/mman.h>

enum { LENGTH = 1 << 20 };

/* Memory that cannot be registered. */
static void refuse_regions(struct ibv_pd *pd)
{
	void *gone = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(gone != MAP_FAILED);
	MUST(mprotect(gone, LENGTH, PROT_READ));
	for (size_t length = 1; length <= LENGTH; length *= 4)
		EXPECT(ibv_reg_mr(pd, gone, length, IBV_ACCESS_LOCAL_WRITE) == NULL && errno == EFAULT);
	MUST(mprotect(gone, LENGTH, PROT_NONE));
	for (size_t length = 1; length <= LENGTH; length *= 4)
		EXPECT(ibv_reg_mr(pd, gone, length, 0) == NULL && errno == EFAULT);
	MUST(munmap(gone, LENGTH));
	for (int access = 0; access <= IBV_ACCESS_LOCAL_WRITE; access++) {
		EXPECT(ibv_reg_mr(pd, NULL, 0, access) == NULL && errno == EINVAL);
		for (size_t length = 1; length <= LENGTH; length *= 4) {
			EXPECT(ibv_reg_mr(pd, NULL, length, access) == NULL && errno == EFAULT);
			EXPECT(ibv_reg_mr(pd, gone, length, access) == NULL && errno == EFAULT);
		}
	}
}

int main(void)
{
	struct ibv_device **list;
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	static char memory[LENGTH];

	deadline(60);
	MUST_PTR(list = ibv_get_device_list(NULL));
	EXPECT(list[0] != NULL);
	MUST_PTR(context = ibv_open_device(list[0]));
	MUST_PTR(pd = ibv_alloc_pd(context));
	refuse_regions(pd);
	MUST_PTR(mr = ibv_reg_mr(pd, memory, LENGTH, IBV_ACCESS_LOCAL_WRITE));
	MUST(ibv_dereg_mr(mr));
	MUST(ibv_dealloc_pd(pd));
	MUST(ibv_close_device(context));
	ibv_free_device_list(list);
	printf("secure %lu\n", getauxval(AT_SECURE));
	return 0;
}
