/*
 * Windows types, status values and memory descriptors for the NDKPI headers, on LP64 systems.
 *
 * Every type has the same size as on 64-bit Windows. LONG and ULONG have 32 bits here too: never
 * print these types with %ld. SOCKADDR is `struct sockaddr` of the host, with the address families
 * of the host.
 */
#ifndef ADVERB_NT_H
#define ADVERB_NT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#ifndef VOID
#define VOID void
#endif
#ifndef CONST
#define CONST const
#endif
#ifndef TRUE
#define TRUE 1
#endif
#ifndef FALSE
#define FALSE 0
#endif

typedef void *PVOID;
typedef unsigned char UCHAR, BOOLEAN;
typedef int16_t SHORT, CSHORT;
typedef uint16_t USHORT;
typedef int32_t LONG;
typedef uint32_t ULONG, UINT32;
typedef int64_t LONGLONG;
typedef uint64_t ULONGLONG, UINT64;
typedef uintptr_t ULONG_PTR, SIZE_T, KAFFINITY;
typedef LONG NTSTATUS;

#define MAXULONG 0xffffffffu

/* The page size of NDKPI, on every host. */
#ifndef PAGE_SIZE
#define PAGE_SIZE 4096u
#endif

typedef struct _GUID {
    ULONG Data1;
    USHORT Data2;
    USHORT Data3;
    UCHAR Data4[8];
} GUID;

typedef union _LARGE_INTEGER {
    __extension__ struct {
        ULONG LowPart;
        LONG HighPart;
    };
    struct {
        ULONG LowPart;
        LONG HighPart;
    } u;
    LONGLONG QuadPart;
} LARGE_INTEGER, PHYSICAL_ADDRESS;

typedef struct _GROUP_AFFINITY {
    KAFFINITY Mask;
    USHORT Group;
    USHORT Reserved[3];
} GROUP_AFFINITY;

typedef struct sockaddr SOCKADDR, *PSOCKADDR;

/*
 * A memory descriptor list entry: a range of the program's memory. The provider reads only Next,
 * StartVa, ByteCount and ByteOffset, so a program may also fill in an entry. A chain describes a
 * virtually contiguous range: each entry begins at the end of the entry before.
 *
 * In user space no page is locked, so the program has a duty that the kernel does not have. The
 * memory must stay mapped while anything made from the descriptor exists: the registration, the
 * logical address mapping, and requests that use it.
 */
typedef struct _MDL {
    struct _MDL *Next;
    CSHORT Size;
    CSHORT MdlFlags;
    USHORT AllocationProcessorNumber;
    USHORT Reserved;
    PVOID Process;
    PVOID MappedSystemVa;
    PVOID StartVa;    /* rounded down to a page */
    ULONG ByteCount;  /* length of the range */
    ULONG ByteOffset; /* offset of the first byte from StartVa */
} MDL, *PMDL;

#define MmGetMdlVirtualAddress(Mdl) ((PVOID)((char *)(Mdl)->StartVa + (Mdl)->ByteOffset))
#define MmGetMdlByteCount(Mdl) ((Mdl)->ByteCount)
#define MmGetMdlByteOffset(Mdl) ((Mdl)->ByteOffset)

#define NT_SUCCESS(Status) ((NTSTATUS)(Status) >= 0)

/* The status values of the provider, as in ntstatus.h. */
#define STATUS_SUCCESS                 ((NTSTATUS)0x00000000)
#define STATUS_TIMEOUT                 ((NTSTATUS)0x00000102)
#define STATUS_PENDING                 ((NTSTATUS)0x00000103)
#define STATUS_BUFFER_OVERFLOW         ((NTSTATUS)0x80000005)
#define STATUS_DEVICE_BUSY             ((NTSTATUS)0x80000011)
#define STATUS_UNSUCCESSFUL            ((NTSTATUS)0xc0000001)
#define STATUS_ACCESS_VIOLATION        ((NTSTATUS)0xc0000005)
#define STATUS_INVALID_HANDLE          ((NTSTATUS)0xc0000008)
#define STATUS_INVALID_PARAMETER       ((NTSTATUS)0xc000000d)
#define STATUS_NO_SUCH_DEVICE          ((NTSTATUS)0xc000000e)
#define STATUS_INVALID_DEVICE_REQUEST  ((NTSTATUS)0xc0000010)
#define STATUS_NO_MEMORY               ((NTSTATUS)0xc0000017)
#define STATUS_ACCESS_DENIED           ((NTSTATUS)0xc0000022)
#define STATUS_BUFFER_TOO_SMALL        ((NTSTATUS)0xc0000023)
#define STATUS_INVALID_PARAMETER_MIX   ((NTSTATUS)0xc0000030)
#define STATUS_DATA_OVERRUN            ((NTSTATUS)0xc000003c)
#define STATUS_SHARING_VIOLATION       ((NTSTATUS)0xc0000043)
#define STATUS_DELETE_PENDING          ((NTSTATUS)0xc0000056)
#define STATUS_INSUFFICIENT_RESOURCES  ((NTSTATUS)0xc000009a)
#define STATUS_DEVICE_NOT_READY        ((NTSTATUS)0xc00000a3)
#define STATUS_IO_TIMEOUT              ((NTSTATUS)0xc00000b5)
#define STATUS_NOT_SUPPORTED           ((NTSTATUS)0xc00000bb)
#define STATUS_INTERNAL_ERROR          ((NTSTATUS)0xc00000e5)
#define STATUS_CANCELLED               ((NTSTATUS)0xc0000120)
#define STATUS_REMOTE_RESOURCES        ((NTSTATUS)0xc000013d)
#define STATUS_INVALID_ADDRESS         ((NTSTATUS)0xc0000141)
#define STATUS_INVALID_DEVICE_STATE    ((NTSTATUS)0xc0000184)
#define STATUS_POSSIBLE_DEADLOCK       ((NTSTATUS)0xc0000194)
#define STATUS_INVALID_BUFFER_SIZE     ((NTSTATUS)0xc0000206)
#define STATUS_TOO_MANY_ADDRESSES      ((NTSTATUS)0xc0000209)
#define STATUS_ADDRESS_ALREADY_EXISTS  ((NTSTATUS)0xc000020a)
#define STATUS_CONNECTION_DISCONNECTED ((NTSTATUS)0xc000020c)
#define STATUS_CONNECTION_RESET        ((NTSTATUS)0xc000020d)
#define STATUS_CONNECTION_REFUSED      ((NTSTATUS)0xc0000236)
#define STATUS_GRACEFUL_DISCONNECT     ((NTSTATUS)0xc0000237)
#define STATUS_CONNECTION_INVALID      ((NTSTATUS)0xc000023a)
#define STATUS_CONNECTION_ACTIVE       ((NTSTATUS)0xc000023b)
#define STATUS_NETWORK_UNREACHABLE     ((NTSTATUS)0xc000023c)
#define STATUS_HOST_UNREACHABLE        ((NTSTATUS)0xc000023d)
#define STATUS_CONNECTION_ABORTED      ((NTSTATUS)0xc0000241)
#define STATUS_DEVICE_REMOVED          ((NTSTATUS)0xc00002b6)
#define STATUS_IMPLEMENTATION_LIMIT    ((NTSTATUS)0xc000042b)

#endif
